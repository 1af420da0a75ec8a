package trigger_test

import (
	"testing"

	"federator.dev/federator/internal/trigger"
)

func TestTrigger_IsReceivedOnceHoweverOftenItIsFired(t *testing.T) {
	tr := trigger.New()
	for range 2 {
		tr.Fire()
		tr.Fire()
		<-tr
		select {
		case <-tr:
			t.Fatal("received twice")
		default:
		}
	}
}
