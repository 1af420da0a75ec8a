package exchange

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// lateWriter takes a write, and its deadlines, later than the stream's.
type lateWriter struct {
	*httptest.ResponseRecorder

	takes time.Duration
}

func (w *lateWriter) Write(p []byte) (int, error) {
	time.Sleep(w.takes)
	return len(p), nil
}

func (w *lateWriter) SetWriteDeadline(time.Time) error { return nil }

// TestDeadlines_AWriteThatIsDoneTooLateHasStalled: net/http has ended the stream meanwhile, and says so at the next write only.
func TestDeadlines_AWriteThatIsDoneTooLateHasStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]error{999 * time.Millisecond: nil, time.Second: errStalled, time.Minute: errStalled} {
			w := &lateWriter{httptest.NewRecorder(), takes}
			d := &deadlines{w: w, control: http.NewResponseController(w), stall: time.Second}
			if _, err := d.Write([]byte("x")); !errors.Is(err, want) {
				t.Errorf("a write of %s: %v", takes, err)
			}
		}
	})
}
