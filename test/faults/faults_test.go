package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's logs are not the test's
	goleak.VerifyTestMain(m)
}

// fault is a row of the matrix. The first member is the one that it befalls, where it befalls one.
type fault struct {
	name  string
	short bool // it is played by go test
	// For how long, and for how long in a short turn.
	hold, brief time.Duration

	inject func(r *rig) error
	during func(r *rig) error // once the fault has lasted; may be nil
	heal   func(r *rig) error // may be nil: it is over by itself

	lists int // how many lists may be made for it; unbounded: as many as it takes

	able func(r *rig) string // why it cannot be played here, "" if it can; may be nil
	note func(r *rig) string // what else is to be said of it; may be nil
}

const unbounded = -1

// all reports whether all is played.
func all() bool { return os.Getenv("FAULTS") != "" }

// lasts is for how long a fault lasts.
func (f *fault) lasts() time.Duration {
	if all() {
		return f.hold
	}
	return f.brief
}

// TestFaults plays the matrix.
func TestFaults(t *testing.T) {
	only, err := regexp.Compile(os.Getenv("FAULTS_ROWS"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	var rows []*row
	for _, group := range [][]fault{linkFaults, answerFaults, serverFaults, kindFaults, hubFaults, clockFaults, processFaults, diskFaults} {
		for _, f := range group {
			if !f.short && !all() && os.Getenv("FAULTS_ROWS") == "" || !only.MatchString(f.name) {
				continue
			}
			w := r.play(&f)
			rows = append(rows, w)
			t.Log(w)
			r.publish(rows, "")
		}
	}
	links := r.recoveries(only)
	t.Logf("\n%s\n%s", table(rows), links)
	r.publish(rows, links)
	if only.MatchString("dropped event") {
		r.do(r.seesADroppedEvent())
	}
}

// publish writes the table as far as it is known: a run is long.
func (r *rig) publish(rows []*row, links string) {
	r.t.Helper()
	if os.Getenv("FAULTS") == "write" {
		r.do(os.WriteFile("README.md", fmt.Appendf(nil, document, "make faults FAULTS=write", r.on, table(rows), links), 0o644))
	}
}

// play plays a fault and looks at what comes of it.
func (r *rig) play(f *fault) *row {
	ctx := r.t.Context()
	w := &row{name: f.name}
	if f.able != nil {
		if w.cannot = f.able(r); w.cannot != "" {
			return w
		}
	}
	r.settle()
	for _, x := range r.watchers {
		x.take()
	}
	r.reader.reset()
	before, err := r.lists(ctx)
	r.do(err)
	r.base, r.sum = before, map[string]int{}
	began := time.Now()
	if err := f.inject(r); err != nil {
		r.t.Fatalf("%s: %v", f.name, err)
	}
	r.endure(f)
	if f.heal != nil {
		if err := f.heal(r); err != nil {
			r.t.Fatalf("%s: %v", f.name, err)
		}
	}
	healed := time.Now()
	release := r.pause()
	for _, m := range r.members { // each row has something to correct
		r.do(r.untilErr(func() error { return m.violate(ctx) }))
	}
	r.judge(f, w, healed)
	if f.note != nil {
		w.note = f.note(r)
	}
	release()
	r.t.Logf("%s: over %s", f.name, round(time.Since(began)))
	if err := r.restore(); err != nil {
		r.t.Fatalf("%s: %v", f.name, err)
	}
	return w
}

// endure lets a fault last.
func (r *rig) endure(f *fault) {
	if d := f.lasts(); d > 0 {
		select {
		case <-time.After(d): // the fault is this long
		case <-r.t.Context().Done():
		}
	}
	if f.during != nil {
		if err := f.during(r); err != nil {
			r.t.Errorf("%s: %v", f.name, err)
		}
	}
}

// judge fills the columns. Nothing is written meanwhile but by federator.
func (r *rig) judge(f *fault, w *row, healed time.Time) {
	ctx := r.t.Context()
	wrong := func(column string, err error) string {
		r.t.Errorf("%s: %s: %v", f.name, column, err)
		return "differs"
	}
	within := func(column string, check func(context.Context) error) string {
		if err := kube.Until(ctx, patience, func() error { return check(ctx) }); err != nil {
			return wrong(column, err)
		}
		return "equal"
	}
	w.index = within("index", r.exact)
	w.exact = time.Since(healed)
	corrections := within("writes", r.corrected)
	w.verdicts = within("verdicts", r.verdictsEqual)
	if everywhere := within("index, all kinds", r.exactEverywhere); everywhere != "equal" {
		w.index = everywhere
	}
	watches := within("readers, watches", r.equal)

	now, err := r.lists(ctx)
	r.do(err)
	w.lists = map[string]int{}
	sum := 0
	for cause, n := range now {
		w.lists[cause] = n - r.base[cause]
	}
	for cause, n := range r.sum {
		w.lists[cause] += n
	}
	for _, n := range w.lists {
		sum += n
	}
	if f.lists != unbounded && sum > f.lists {
		_ = wrong("lists", fmt.Errorf("%s, want %d at most", causes(w.lists), f.lists))
	}
	text, problems := r.reader.seen()
	for _, x := range r.watchers {
		problems = append(problems, x.take()...)
	}
	w.readers = text
	if len(problems) > 0 {
		w.readers = fmt.Sprintf("%d wrong, %s", len(problems), text)
		_ = wrong("readers", fmt.Errorf("%d problems: %s", len(problems), strings.Join(problems[:min(len(problems), 5)], "; ")))
	}
	if watches != "equal" {
		w.readers += "; a watch differs"
	}
	if w.right, w.wrong, err = r.writes(); err != nil || len(w.wrong) > 0 {
		_ = wrong("writes", errors.Join(err, errors.New(strings.Join(w.wrong, "; "))))
	}
	if w.right < len(r.members) {
		_ = wrong("writes", fmt.Errorf("%d right, want one for each member at least", w.right))
	}
	if corrections != "equal" {
		w.wrong = append(w.wrong, "what is wanted is not written")
	}
}
