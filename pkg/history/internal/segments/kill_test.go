package segments

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// appendTo is the directory that a process is started for to append to, until it is killed.
const appendTo = "FEDERATOR_TEST_SEGMENTS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(appendTo); dir != "" {
		appendForever(dir, os.Getenv(appendTo+"_ENCRYPTED") != "")
	}
	goleak.VerifyTestMain(m)
}

func killOptions(dir string, encrypted bool) Options {
	o := Options{Directory: dir, SegmentBytes: minSegmentBytes, Boot: "boot"}
	if encrypted {
		o.Key = bytes.Repeat([]byte{3}, 32)
	}
	return o
}

// payloadOf is what is appended as the nth of a process.
func payloadOf(pid, n int) string {
	return fmt.Sprintf("%d/%d/%s", pid, n, bytes.Repeat([]byte{'x'}, n*7919%400))
}

// appendForever prints the first and the last position of each batch once Append has returned, and
// which of its entries is the first.
func appendForever(dir string, encrypted bool) {
	l, err := Open(killOptions(dir, encrypted))
	if err != nil {
		panic(err)
	}
	go func() { panic(l.Run(context.Background())) }()
	for n := 0; ; {
		batch := make([]Entry, 1+n%50)
		for i := range batch {
			batch[i] = Entry{Kind: "Pod", Name: fmt.Sprint("web-", (n+i)%20), Payload: []byte(payloadOf(os.Getpid(), n+i))}
		}
		last, err := l.Append(batch)
		if err != nil {
			panic(err)
		}
		if n%500 < 50 {
			if err := l.Sync(); err != nil {
				panic(err)
			}
		}
		if _, err := fmt.Printf("%d %d %d\n", batch[0].Position, last, n); err != nil {
			panic(err)
		}
		n += len(batch)
	}
}

// TestLog_KilledLosesNothing: a process is killed at random times while it appends and seals; all
// that Append had returned is there, once, at the position that it had.
func TestLog_KilledLosesNothing(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted=%t", encrypted), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			var dir string
			var want map[uint64]string
			appended, sealed := 0, 0
			for kill := range kills(t) {
				if kill%10 == 0 { // what is compared grows with each
					dir, want = fmt.Sprint(t.TempDir(), "/", kill), map[uint64]string{}
				}
				before := len(want)
				killOne(t, dir, encrypted, rng.IntN(400), want)
				sealed += compareKilled(t, kill, dir, encrypted, want)
				appended += len(want) - before
			}
			if appended < 1000 || sealed == 0 {
				t.Errorf("only %d entries were appended, and %d segments sealed", appended, sealed)
			}
			t.Logf("%d kills, %d entries", kills(t), appended)
		})
	}
}

// compareKilled compares what there is after a kill with what was told of, and adds to that what the
// process could not tell of. It returns how many segments are sealed.
func compareKilled(t *testing.T, kill int, dir string, encrypted bool, want map[uint64]string) (sealed int) {
	t.Helper()
	l, err := Open(killOptions(dir, encrypted))
	if err != nil {
		t.Fatal(err)
	}
	defer l.die()
	got, gaps := read(t, l, Query{})
	if len(gaps) > 0 {
		t.Fatalf("kill %d: gaps %+v", kill, gaps)
	}
	before := uint64(0)
	for _, e := range got {
		if e.Position <= before {
			t.Fatalf("kill %d: position %d after %d", kill, e.Position, before)
		}
		before = e.Position
		if w, ok := want[e.Position]; ok && w != string(e.Payload) {
			t.Fatalf("kill %d: position %d has %.30q, want %.30q", kill, e.Position, e.Payload, w)
		}
		want[e.Position] = string(e.Payload)
	}
	st := l.Status()
	if st.Last.Position != before || len(want) != len(got) {
		t.Fatalf("kill %d: %d entries of %d, the last is %d, not %d", kill, len(got), len(want), st.Last.Position, before)
	}
	return st.Segments - st.Unsealed - 1
}

// kills is how many there are, more where FEDERATOR_TEST_SEGMENTS_KILLS says so.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv(appendTo + "_KILLS")
	if text == "" {
		return 6
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// die ends the log as SIGKILL does: what is not synced is in the kernel.
func (l *Log) die() {
	for _, s := range append(l.segments, l.unsynced...) {
		s.release()
	}
	l.lock.Close()
}

// killOne starts a process, and kills it after it has told of some batches.
func killOne(t *testing.T, dir string, encrypted bool, batches int, told map[uint64]string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), appendTo+"="+dir)
	if encrypted {
		c.Env = append(c.Env, appendTo+"_ENCRYPTED=1")
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ { // what it told before it died counts, too
		var first, last uint64
		var from int
		if _, err := fmt.Sscan(lines.Text(), &first, &last, &from); err != nil {
			break // the last line is torn
		}
		for p := first; p <= last; p++ {
			told[p] = payloadOf(c.Process.Pid, from+int(p-first))
		}
		if n == batches {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Wait(); err == nil || stderr.Len() > 0 {
		t.Fatalf("it ended with %v: %s", err, stderr.Bytes())
	}
}
