package resources

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestEncoder_PanicOfAnEncoderIsTheRequests encodes objects that are none.
func TestEncoder_PanicOfAnEncoderIsTheRequests(t *testing.T) {
	for _, objects := range []int{1, 100 * blockSize} {
		func() {
			defer func() {
				if cause := fmt.Sprint(recover()); !strings.Contains(cause, "nil pointer") {
					t.Errorf("%d objects: the panic is %s", objects, cause)
				}
			}()
			q := &request{Handler: &Handler{}}
			err := q.encodeAll(t.Context(), func(yield func(aggregate.Object, error) bool) {
				for range objects {
					if !yield(aggregate.Object{}, nil) {
						return
					}
				}
			}, func([]byte) error { return nil })
			t.Errorf("%d objects: no panic, %v", objects, err)
		}()
	}
}
