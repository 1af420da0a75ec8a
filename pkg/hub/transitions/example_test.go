package transitions_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub/transitions"
)

// What becomes of the hub's objects is recorded in a history, which Run of that writes.
func Example() {
	record := func(ctx context.Context, hub *rest.Config, h *history.History, leads func() bool) error {
		recorder, err := transitions.New(transitions.Options{Config: hub, Namespace: "federator", Log: h, Leads: leads})
		if err != nil {
			return err
		}
		return recorder.Run(ctx)
	}
	_ = record
	_, err := transitions.New(transitions.Options{})
	fmt.Println(err)
	// Output: transitions: Config, Namespace and Log are required
}
