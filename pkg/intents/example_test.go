package intents_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/remediate"
)

// A process tells others what its members need, and corrects the whole fleet while it leads.
func Example() {
	var (
		ctx        context.Context
		dispatcher *remediate.Dispatcher     // whose Options.Incomplete is Receiver.Incomplete
		lease      func() (time.Time, error) // of the process that writes
		fleet      func() *intents.Fleet     // who judges what
		peers      *http.ServeMux            // only peers reach it
	)
	sender, err := intents.NewSender(intents.SenderOptions{Self: "federator-0", Epoch: "1", Protected: dispatcher.Protected})
	if err != nil {
		log.Fatal(err)
	}
	peers.Handle(intents.Path, sender)
	receiver, err := intents.NewReceiver(intents.ReceiverOptions{Self: sender, Actor: dispatcher, Lease: lease, Fleet: fleet})
	if err != nil {
		log.Fatal(err)
	}
	_ = enforce.NewCorrector(sender, nil) // and Sender.Evaluated, after each of its changes
	_ = receiver.Run(ctx)
}
