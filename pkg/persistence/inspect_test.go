package persistence_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/pkg/persistence"
)

// TestInspect_SaysWhatIsNotSound: of what is sound nothing, while a process writes and after it.
func TestInspect_SaysWhatIsNotSound(t *testing.T) {
	dir := t.TempDir() + "/d"
	p := start(t, dir, 1, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range []string{"prod/eu-1", "prod/us-1"} {
		p.member(m)
		s := p.open(m, "Pod")
		for rv := range 50 {
			s.Upsert(p.item(s, fmt.Sprint("web-", rv), rv+1, rng))
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			p.settle() // a frame of its own
		}
	}
	last := p.settle().Revision()
	check := func(inUse bool, problems ...string) {
		t.Helper()
		got, err := persistence.Inspect(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.InUse != inUse || got.Problem != "" || got.Readers != last || got.Bytes == 0 || len(got.Members) != 2 {
			t.Errorf("got %+v", got)
		}
		for i, m := range got.Members {
			want := ""
			if i < len(problems) {
				want = problems[i]
			}
			if found := strings.Join(m.Problems, "; "); found != want && (want == "" || !strings.Contains(found, want)) {
				t.Errorf("%s: %q, want %q", m.Name, found, want)
			}
			if m.Frames == 0 || m.Bytes == 0 || m.Written.IsZero() {
				t.Errorf("got %+v", m)
			}
		}
	}
	check(true)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	check(false)
	logs, err := filepath.Glob(filepath.Join(dir, "members", "prod%2Feu-1", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(logs[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	check(false, "not as it was written")
	if err := os.WriteFile(logs[0], text[:len(text)/3], 0o600); err != nil {
		t.Fatal(err)
	}
	check(false, "ends in the middle of a frame")
	if got, err := persistence.Inspect(t.Context(), dir, make([]byte, 32)); err != nil || got.Problem == "" {
		t.Errorf("with a key: %+v, %v", got, err)
	}
	if _, err := persistence.Inspect(t.Context(), dir+"/none", nil); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
