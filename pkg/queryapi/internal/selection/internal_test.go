package selection

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestMatch_PanicReachesTheCaller matches objects that are none: the panic of another
// goroutine would end the process, that of a request's own ends the request.
func TestMatch_PanicReachesTheCaller(t *testing.T) {
	defer func() {
		if p := recover(); p == nil {
			t.Error("no panic")
		} else if !strings.Contains(fmt.Sprint(p), "nil pointer") {
			t.Errorf("panic: %v", p)
		}
	}()
	rest := &residual{terms: []bodyTerm{{value: "x"}}}
	none := func(yield func(aggregate.Object) bool) {
		for yield(aggregate.Object{}) {
		}
	}
	for range matchParallel(t.Context(), none, rest) {
	}
}
