package faults

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const widgetDefinition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.faults.example"

// kindFaults befall a kind that a member serves.
var kindFaults = []fault{
	{
		name: "CRD deleted and made anew", hold: 15 * time.Second, brief: 2 * time.Second, lists: unbounded,
		inject: func(r *rig) error {
			ctx, m := r.t.Context(), r.members[0]
			if err := m.send(ctx, http.MethodDelete, widgetDefinition, ""); err != nil {
				return err
			}
			return r.until("the CRD to be gone", func() bool { return apierrors.IsNotFound(m.send(ctx, http.MethodGet, widgetDefinition, "")) })
		},
		heal: func(r *rig) error {
			ctx, m := r.t.Context(), r.members[0]
			if err := m.Apply(ctx, []byte(widgetCRD)); err != nil {
				return err
			}
			body := object("faults.example/v1", "Widget", "again", m.name, `"set":"churn"`, `"spec":{"size":9}`)
			return r.untilErr(func() error { return m.send(ctx, http.MethodPost, widgets, body) })
		},
	},
	{
		name: "storage version migrated", hold: 5 * time.Second, brief: time.Second, lists: unbounded,
		inject: func(r *rig) error {
			ctx, m := r.t.Context(), r.members[0]
			if err := m.Apply(ctx, []byte(strings.NewReplacer("storage: true", "storage: false", "storage: false", "storage: true").Replace(widgetCRD))); err != nil {
				return err
			}
			var raw []byte
			err := r.untilErr(func() (err error) { // the server has to make its cache of them anew
				raw, err = get(ctx, m.direct, m.host+widgets)
				return err
			})
			if err != nil {
				return err
			}
			var list struct{ Items []listed }
			if err := json.Unmarshal(raw, &list); err != nil {
				return err
			}
			for _, o := range list.Items { // what writes an object without a change stores it anew
				err := r.untilErr(func() error {
					err := m.send(ctx, http.MethodPatch, widgets+"/"+o.Metadata.Name, `{}`)
					if apierrors.IsNotFound(err) {
						err = nil
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
		heal: func(r *rig) error { return r.members[0].Apply(r.t.Context(), []byte(widgetCRD)) },
	},
}
