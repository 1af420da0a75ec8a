package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/internal/admission"
)

// TestKeeper_KnowsSinceWhen: over processes, as long as nothing was changed in between, each
// of the two apart.
func TestKeeper_KnowsSinceWhen(t *testing.T) {
	client, _ := clientFor(t, as(t, federator))
	t.Cleanup(func() {
		must(t, hub(t).Client().CoordinationV1().Leases("federator").Delete(context.WithoutCancel(t.Context()), "federator-admission", metav1.DeleteOptions{}))
	})
	keeper := func() *admission.Keeper { return admission.NewKeeper(client, "federator") } // of a process
	checkKnown := func(what string) (approvals, authors admission.Known) {
		t.Helper()
		known, err := keeper().Check(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if rollbacks := known.Rollbacks; rollbacks.Since.IsZero() != known.Approvals.Since.IsZero() || rollbacks.Since.Before(known.Approvals.Since) {
			t.Errorf("%s: rollbacks are known since %s, approvals since %s", what, rollbacks.Since, known.Approvals.Since)
		}
		return known.Approvals, known.Authors
	}
	if approvals, authors := checkKnown("nothing is installed"); !approvals.Since.IsZero() || !authors.Since.IsZero() || !strings.Contains(approvals.Why, "does not exist") || authors.Why == "" {
		t.Errorf("without policies: %+v, %+v", approvals, authors)
	}
	install(t, approvalsName, authorsName, rollbacksName)
	proven(t, prover(t, nil))
	before := hubTime(t)
	first, firstAuthors := checkKnown("the first")
	if first.Since.Before(before) || first.Since.After(hubTime(t)) || !first.Since.Equal(firstAuthors.Since) && firstAuthors.Since.Before(first.Since) {
		t.Errorf("known since %s and %s, installed before %s", first.Since, firstAuthors.Since, before)
	}
	tick(t, first.Since)
	if again, authors := checkKnown("again"); !again.Since.Equal(first.Since) || !authors.Since.Equal(firstAuthors.Since) {
		t.Errorf("another process knows it since %s and %s, not %s", again.Since, authors.Since, first.Since)
	}

	// What is changed and restored between two checks is another.
	policy, binding := shipped(t, authorsName)
	put(t, authorsName, policy, nil)
	put(t, authorsName, policy, binding)
	tick(t, firstAuthors.Since)
	again, authors := checkKnown("authors restored")
	if !again.Since.Equal(first.Since) || !authors.Since.After(firstAuthors.Since) {
		t.Errorf("known since %s and %s, before %s and %s", again.Since, authors.Since, first.Since, firstAuthors.Since)
	}

	// What is not in force for a while is proven again, though nothing else is known to have changed.
	off := admission.NewKeeper(admitting(t), "federator")
	if known, err := off.Check(t.Context()); err != nil || !known.Approvals.Since.IsZero() || !known.Authors.Since.IsZero() || !known.Rollbacks.Since.IsZero() {
		t.Errorf("not in force: %+v, %v", known, err)
	}
	tick(t, authors.Since)
	if again, more := checkKnown("in force again"); !again.Since.After(authors.Since) || !more.Since.After(authors.Since) {
		t.Errorf("known since %s and %s, not after %s", again.Since, more.Since, authors.Since)
	}

	// When it was recorded is not known: nothing is proven.
	lease, err := hub(t).Client().CoordinationV1().Leases("federator").Get(t.Context(), "federator-admission", metav1.GetOptions{})
	must(t, err)
	lease.ManagedFields = []metav1.ManagedFieldsEntry{{}} // resets them
	_, err = hub(t).Client().CoordinationV1().Leases("federator").Update(t.Context(), lease, metav1.UpdateOptions{})
	must(t, err)
	if known, err := keeper().Check(t.Context()); err == nil || !strings.Contains(err.Error(), "federator/federator-admission") || known != (admission.KnownProofs{}) {
		t.Errorf("without field managers: %+v, %v", known, err)
	}
}

// hubTime returns the hub's time, in seconds as objects have it.
func hubTime(t *testing.T) time.Time {
	t.Helper()
	return time.Now().Truncate(time.Second) // it is the same machine
}

// tick waits until the hub's clock shows a later second.
func tick(t *testing.T, than time.Time) {
	t.Helper()
	until(t, func() error {
		if now := hubTime(t); !now.After(than) {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
}

// admitting returns a client of federator's on an API server that admits everything.
func admitting(t *testing.T) kubernetes.Interface {
	t.Helper()
	cfg := as(t, federator)
	cfg.Wrap(answering(func(r *http.Request) (*http.Response, error) { return response(r, http.StatusCreated, created), nil }))
	client, _ := clientFor(t, cfg)
	return client
}
