package dirlock

import (
	"errors"
	"testing"
)

// TestInUse_LocksNobodyOut: a process that starts while somebody asks is not locked out, one that
// starts while another runs is.
func TestInUse_LocksNobodyOut(t *testing.T) {
	dir := t.TempDir()
	if InUse(dir) {
		t.Error("a directory is in use that nobody has ever used")
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				InUse(dir)
			}
		}
	}()
	for range 2000 {
		lock, err := Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !InUse(dir) {
			t.Fatal("a directory is not in use that is locked")
		}
		if _, err := Lock(dir); !errors.Is(err, ErrLocked) {
			t.Fatalf("locked again: %v", err)
		}
		lock.Close()
	}
	close(stop)
	<-stopped
	if InUse(dir) {
		t.Error("a directory is still in use")
	}
}
