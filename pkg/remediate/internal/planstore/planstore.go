// Package planstore keeps Plans and their parts on the hub.
//
// # Concurrency
//
// A Store is safe for concurrent use, by several processes too: what one of them begins to
// record, another completes, and a Plan that waits for Approvals, or has had them, is never
// replaced.
//
// # Trade-offs
//
// Parts are read one by one, by name: that costs a request for each, and no more the more Plans
// there are.
package planstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

var (
	// ErrChanged is returned for a Plan that somebody else has changed, or deleted.
	ErrChanged = errors.New("the Plan has been changed")
	// ErrTaken is returned for a Plan whose name another one has. Their hashes begin alike.
	ErrTaken = errors.New("another Plan has its name")
)

// pageSize is how many objects are listed at once: Plans of up to half a megabyte each, and
// the metadata of parts.
const pageSize = 50

// Store has the Plans on a hub. Requests that fail with a temporary error are retried.
type Store struct{ Hub hubclient.Client }

// List returns all Plans as they are now.
func (s Store) List(ctx context.Context) ([]v1alpha1.Plan, error) { return s.list(ctx, "") }

// ListPurpose returns all Plans that are for something.
func (s Store) ListPurpose(ctx context.Context, purpose v1alpha1.PlanPurpose) ([]v1alpha1.Plan, error) {
	return s.list(ctx, "spec.purpose="+string(purpose))
}

// list returns the Plans that a field selector selects.
func (s Store) list(ctx context.Context, selector string) (plans []v1alpha1.Plan, err error) {
	err = s.forEachPage(ctx, v1alpha1.Plans, selector, hubclient.JSON, func() { plans = nil }, func(text []byte) (string, error) {
		page := &v1alpha1.PlanList{}
		if err := json.Unmarshal(text, page); err != nil {
			return "", err
		}
		plans = append(plans, page.Items...)
		return page.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	return plans, nil
}

// metadataList asks for the metadata of objects.
const metadataList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

// listParts returns the metadata of the parts of all Plans that have, or had, a name.
func (s Store) listParts(ctx context.Context, plan string) (parts []metav1.PartialObjectMetadata, err error) {
	err = s.forEachPage(ctx, v1alpha1.PlanParts, "spec.plan="+plan, metadataList, func() { parts = nil }, func(text []byte) (string, error) {
		page := &metav1.PartialObjectMetadataList{}
		if err := json.Unmarshal(text, page); err != nil {
			return "", err
		}
		parts = append(parts, page.Items...)
		return page.Continue, nil
	})
	return parts, err
}

// forEachPage calls f with the pages of a list, which returns where the next one begins. It
// calls restart where it begins again.
func (s Store) forEachPage(ctx context.Context, resource, selector, accept string, restart func(), f func([]byte) (string, error)) error {
	next := ""
	for restarts := 0; ; {
		var page json.RawMessage
		err := s.Hub.Retry(ctx, func(ctx context.Context) error {
			r := s.Hub.Request(http.MethodGet, resource).Param("limit", strconv.Itoa(pageSize)).SetHeader("Accept", accept)
			if selector != "" {
				r = r.Param("fieldSelector", selector)
			}
			if next != "" {
				r = r.Param("continue", next)
			}
			return s.Hub.Do(ctx, r, &page)
		})
		if apierrors.IsResourceExpired(err) && restarts < 3 {
			restarts++ // the continue token has expired
			restart()
			next = ""
			continue
		}
		if err == nil {
			next, err = f(page)
		}
		if err != nil || next == "" {
			return err
		}
	}
}

// Targets returns the targets of a Plan as they are on the hub now. Its error is
// plans.ErrIncomplete or plans.ErrCorrupt where they are not those that were frozen.
func (s Store) Targets(ctx context.Context, plan *v1alpha1.Plan) ([]plans.Target, error) {
	parts := make([]v1alpha1.PlanPart, 0, plan.Spec.Parts)
	for n := int32(1); n <= plan.Spec.Parts; n++ {
		part, err := s.part(ctx, plan, n)
		if err != nil {
			return nil, err
		}
		parts = append(parts, *part)
	}
	return plans.Decode(plan, parts)
}

// part returns a part of a Plan as it is on the hub now.
func (s Store) part(ctx context.Context, plan *v1alpha1.Plan, n int32) (*v1alpha1.PlanPart, error) {
	part := &v1alpha1.PlanPart{}
	err := s.get(ctx, part, v1alpha1.PlanParts, plans.PartName(plan.Name, n))
	switch {
	case apierrors.IsNotFound(err), err == nil && !ownedBy(&part.ObjectMeta, plan.UID):
		return nil, fmt.Errorf("plan %q: %w: part %d of %d", plan.Name, plans.ErrIncomplete, n, plan.Spec.Parts)
	case err != nil:
		return nil, fmt.Errorf("plan %q: part %d: %w", plan.Name, n, err)
	}
	return part, nil
}

func (s Store) get(ctx context.Context, into any, path ...string) error {
	var text json.RawMessage
	err := s.Hub.Retry(ctx, func(ctx context.Context) error { return s.Hub.Do(ctx, s.Hub.Request(http.MethodGet, path...), &text) })
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// ownedBy reports whether an object belongs to the Plan with a UID: there may have been others
// of its name.
func ownedBy(m *metav1.ObjectMeta, plan types.UID) bool {
	for _, o := range m.OwnerReferences {
		if o.Kind == "Plan" && o.UID == plan {
			return true
		}
	}
	return false
}

// PutStatus replaces the status of a Plan, and returns its new version. Its error is ErrChanged
// where the Plan is not in the given version.
func (s Store) PutStatus(ctx context.Context, name, version string, status v1alpha1.PlanStatus) (string, error) {
	version, err := s.putStatus(ctx, name, version, &status)
	if err != nil {
		return "", fmt.Errorf("plan %q: %w", name, err)
	}
	return version, nil
}

func (s Store) putStatus(ctx context.Context, name, version string, status *v1alpha1.PlanStatus) (string, error) {
	body, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string    `json:"metadata"`
		Status          *v1alpha1.PlanStatus `json:"status"`
	}{planType, map[string]string{"name": name, "resourceVersion": version}, status})
	if err != nil {
		return "", err
	}
	maybePut := false // a failed attempt may have been executed
	var out *v1alpha1.Plan
	err = s.Hub.Retry(ctx, func(ctx context.Context) error {
		out = &v1alpha1.Plan{}
		err := s.Hub.Do(ctx, s.Hub.Request(http.MethodPut, v1alpha1.Plans, name, "status").SetHeader("Content-Type", hubclient.JSON).Body(body), out)
		switch {
		case apierrors.IsConflict(err) && maybePut:
			*out = v1alpha1.Plan{}
			err := s.Hub.Do(ctx, s.Hub.Request(http.MethodGet, v1alpha1.Plans, name), out)
			if apierrors.IsNotFound(err) || err == nil && !sameJSON(&out.Status, status) {
				return ErrChanged
			}
			return err
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			return ErrChanged
		case err != nil:
			maybePut = true
		}
		return err
	}, ErrChanged)
	return out.ResourceVersion, err
}

var planType = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "Plan"}

// sameJSON compares two values as they are on the hub.
func sameJSON(a, b any) bool {
	plain := func(v any) (out any) {
		text, err := json.Marshal(v)
		if err != nil || json.Unmarshal(text, &out) != nil {
			return err
		}
		return out
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
