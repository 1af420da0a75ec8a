package planstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
)

// Delete deletes the Plan with a name and a UID, if it is there, with its parts.
func (s Store) Delete(ctx context.Context, name, uid string) error {
	plan := types.UID(uid)
	if err := s.deleteParts(ctx, name, plan); err != nil {
		return err
	}
	if _, err := s.delete(ctx, &metav1.Preconditions{UID: &plan}, v1alpha1.Plans, name); err != nil {
		return fmt.Errorf("plan %q: %w", name, err)
	}
	return nil
}

// deleteParts deletes the parts of a Plan. The hub deletes those whose Plan is gone, too, if its
// garbage collector runs.
func (s Store) deleteParts(ctx context.Context, name string, plan types.UID) error {
	parts, err := s.listParts(ctx, name)
	if err != nil {
		return fmt.Errorf("plan %q: parts: %w", name, err)
	}
	for i := range parts {
		if p := &parts[i]; ownedBy(&p.ObjectMeta, plan) {
			if _, err := s.delete(ctx, &metav1.Preconditions{UID: &p.UID}, v1alpha1.PlanParts, p.Name); err != nil {
				return fmt.Errorf("plan %q: part %q: %w", name, p.Name, err)
			}
		}
	}
	return nil
}

// delete deletes an object if it is as it was seen. It reports whether the object is gone; if
// not, it is another one, or has changed.
func (s Store) delete(ctx context.Context, seen *metav1.Preconditions, path ...string) (gone bool, err error) {
	background := metav1.DeletePropagationBackground
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: seen, PropagationPolicy: &background,
	})
	if err != nil {
		return false, err
	}
	err = s.Hub.Retry(ctx, func(ctx context.Context) error {
		err := s.Hub.Do(ctx, s.Hub.Request(http.MethodDelete, path...).SetHeader("Content-Type", hubclient.JSON).Body(body), nil)
		switch {
		case apierrors.IsConflict(err):
			return nil
		case apierrors.IsNotFound(err):
			err = nil
		}
		gone = err == nil
		return err
	})
	return gone, err
}

// Purge deletes, oldest first, Plans that were over before a time, and those that somebody began
// to record before it and nobody completed. What is in use stays. It deletes at most limit
// objects, Plans and parts, but at least one Plan, and reports how many are left to delete.
func (s Store) Purge(ctx context.Context, before time.Time, limit int, inUse func(*v1alpha1.Plan) bool) (deleted, left int, err error) {
	all, err := s.List(ctx)
	if err != nil {
		return 0, 0, err
	}
	all = slices.DeleteFunc(all, func(p v1alpha1.Plan) bool {
		return isFrozen(p.Status.State) && !IsFinal(p.Status.State) || !since(&p).Before(before) || inUse(&p)
	})
	slices.SortFunc(all, func(a, b v1alpha1.Plan) int {
		return cmp.Or(since(&a).Compare(since(&b)), strings.Compare(a.Name, b.Name))
	})
	objects := 0
	for n := range all {
		p := &all[n]
		if objects += 1 + int(p.Spec.Parts); n > 0 && objects > limit {
			return deleted, len(all) - n, nil
		}
		gone, err := s.purge(ctx, p)
		if err != nil {
			return deleted, len(all) - n, err
		}
		if gone {
			deleted++
		}
	}
	return deleted, 0, nil
}

// purge deletes a Plan with its parts, unless it has changed since it was listed.
func (s Store) purge(ctx context.Context, p *v1alpha1.Plan) (gone bool, err error) {
	if isFrozen(p.Status.State) { // Nobody changes it.
		return true, s.Delete(ctx, p.Name, string(p.UID))
	}
	return s.Discard(ctx, p)
}

// Discard deletes a Plan that is not recorded whole, with its parts, unless it has changed since
// it was read: who completes it may show it to people any time, so the Plan goes before its parts.
func (s Store) Discard(ctx context.Context, p *v1alpha1.Plan) (gone bool, err error) {
	gone, err = s.delete(ctx, &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}, v1alpha1.Plans, p.Name)
	if err != nil {
		return false, fmt.Errorf("plan %q: %w", p.Name, err)
	}
	if !gone {
		return false, nil
	}
	return true, s.deleteParts(ctx, p.Name, p.UID)
}

// since is when a Plan entered its state.
func since(p *v1alpha1.Plan) time.Time {
	if p.Status.Since != nil && isFrozen(p.Status.State) {
		return p.Status.Since.Time
	}
	return p.CreationTimestamp.Time
}
