package persistence_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
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

// TestInspect_LoadsWhatIsThere: frames that are sound may still be of a dictionary that is lost, or
// continue what is lost. Inspect says so of what the next process drops, and changes nothing.
func TestInspect_LoadsWhatIsThere(t *testing.T) {
	for what, c := range map[string]struct{ lose, want string }{
		"the dictionaries": {"dictionaries/*", "would be loaded"},
		"the first log":    {"members/prod%2Feu-1/000000000001.log", "nothing would be loaded"},
		"nothing":          {"none", ""},
	} {
		dir := t.TempDir() + "/d"
		for block := range uint64(2) { // of which the second has a log of its own
			p := start(t, dir, block+1, nil)
			p.member("prod/eu-1")
			fillAndTrain(t, p, p.open("prod/eu-1", "Pod"))
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
		}
		lost, err := filepath.Glob(filepath.Join(dir, c.lose))
		if err != nil || (len(lost) == 0) != (c.want == "") {
			t.Fatal(what, lost, err)
		}
		for _, path := range lost {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		found, err := persistence.Inspect(t.Context(), dir, nil)
		if err != nil || found.Problem != "" || len(found.Members) != 1 {
			t.Fatal(what, found, err)
		}
		said := strings.Join(found.Members[0].Problems, "; ")
		loaded := start(t, dir, 9, nil).out
		if all := loaded.Objects == 200; all != (said == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s is lost: Inspect says %q, and %d objects are loaded, dropped %v", what, said, loaded.Objects, loaded.Dropped)
		}
	}
}

// fillAndTrain writes objects, has a dictionary made of them, and writes them again.
func fillAndTrain(t *testing.T, p *process, s *aggregate.Scope) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2 {
		for i := range 200 {
			s.Upsert(p.item(s, fmt.Sprint("o", i), rng.IntN(1e6), rng))
		}
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
		p.settle()
		for more := true; more; {
			var err error
			if _, more, err = p.index.Train(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}
