package actions

import (
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/hubrequests"
)

// TestNamespace_IsWhereFederatorsLeaseIs: a stop elsewhere would stop nothing.
func TestNamespace_IsWhereFederatorsLeaseIs(t *testing.T) {
	for name, c := range map[string]struct {
		leases      []string
		named       string
		forbidden   bool
		want, error string
		warns       bool
	}{
		"one":                     {leases: []string{"fleet-system"}, want: "fleet-system"},
		"one, named":              {leases: []string{"fleet-system"}, named: "fleet-system", want: "fleet-system"},
		"another is named":        {leases: []string{"fleet-system"}, named: "other", want: "other", warns: true},
		"two":                     {leases: []string{"a", "b"}, error: "a, b: say with --namespace"},
		"two, one named":          {leases: []string{"a", "b"}, named: "b", want: "b"},
		"none":                    {want: "federator", warns: true},
		"they may not be listed":  {forbidden: true, want: "federator"},
		"they may not, one named": {forbidden: true, named: "b", want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			hub := fake.NewClientset()
			hub.PrependReactor("list", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if c.forbidden {
					return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("not you"))
				}
				// The clientset's own list knows no field selectors.
				if got := action.(clienttesting.ListAction).GetListRestrictions().Fields.String(); got != "metadata.name="+election.LeaseName {
					t.Errorf("field selector: %q", got)
				}
				list := &coordinationv1.LeaseList{}
				for _, namespace := range c.leases {
					if in := action.GetNamespace(); in == "" || in == namespace {
						list.Items = append(list.Items, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: election.LeaseName}})
					}
				}
				return true, list, nil
			})
			var stderr strings.Builder
			got, err := (&hubClient{hubrequests.Client{Interface: hub}}).namespace(t.Context(), c.named, &stderr)
			if got != c.want || (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) || (stderr.Len() > 0) != c.warns {
				t.Errorf("%q, %v, %q; want %+v", got, err, stderr.String(), c)
			}
		})
	}
}
