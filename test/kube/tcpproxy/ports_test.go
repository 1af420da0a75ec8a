package tcpproxy

import (
	"os"
	"os/exec"
	"testing"
)

// TestListenBelow_NoPortTwice: not even after it was let go of, and not in another process.
func TestListenBelow_NoPortTwice(t *testing.T) {
	if os.Getenv("RESERVE") != "" {
		if free, err := reserve(firstPort); err != nil || free {
			t.Fatalf("the port of another process is free: %t %v", free, err)
		}
		return
	}
	given := map[string]bool{}
	for range 200 {
		l, err := ListenBelow("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if at := l.Addr().String(); given[at] {
			t.Fatalf("%s twice", at)
		} else {
			given[at] = true
		}
		l.Close()
	}
	if _, err := reserve(firstPort); err != nil { // ours, or that of a test beside
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0], "-test.run=^TestListenBelow_NoPortTwice$", "-test.v")
	other.Env = append(os.Environ(), "RESERVE=1")
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
