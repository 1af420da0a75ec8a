package persistence

import (
	"errors"
	"testing"
)

// TestInUse_LocksNobodyOut: a process that starts while somebody asks is not locked out, one that
// starts while another runs is.
func TestInUse_LocksNobodyOut(t *testing.T) {
	dir := t.TempDir()
	if inUse(dir) {
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
				inUse(dir)
			}
		}
	}()
	for range 2000 {
		lock, err := lockDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !inUse(dir) {
			t.Fatal("a directory is not in use that is locked")
		}
		if _, err := lockDirectory(dir); !errors.Is(err, ErrLocked) {
			t.Fatalf("locked again: %v", err)
		}
		lock.Close()
	}
	close(stop)
	<-stopped
	if inUse(dir) {
		t.Error("a directory is still in use")
	}
}
