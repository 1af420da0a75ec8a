package faults

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// seesADroppedEvent checks that the matrix can fail: one event that is taken out of a watch makes the
// index differ. That is not fixed: nothing is to be played afterwards.
func (r *rig) seesADroppedEvent() error {
	ctx, m := r.t.Context(), r.members[0]
	r.settle()
	release := r.pause()
	defer release()
	var dropped atomic.Int64
	r.throughGate(nil)
	m.gate.set(nil, func(_ string, frame []byte) bool {
		if !bytes.Contains(frame, []byte("unseen")) {
			return false
		}
		dropped.Add(1)
		return true
	})
	send := func(name string) error {
		return m.send(ctx, http.MethodPost, configMaps, object("v1", "ConfigMap", name, m.name, `"set":"proof"`, `"data":{}`))
	}
	if err := errors.Join(send("unseen"), send("seen")); err != nil {
		return err
	}
	// What comes after it is there: the event is not on its way.
	err := r.untilErr(func() error {
		items, _, err := r.list(ctx, "https://"+r.query+"/members/"+m.name+configMaps, 0)
		for _, o := range items {
			if o.Metadata.Name == "seen" {
				return nil
			}
		}
		return errors.Join(err, errors.New("seen is not in the index"))
	})
	if err != nil {
		return err
	}
	if err := r.exact(ctx); err == nil || !strings.Contains(err.Error(), "default/unseen of") {
		return errors.Join(err, fmt.Errorf("the index lacks an event (%d dropped), and is said to be equal", dropped.Load()))
	}
	return r.restore()
}

// answerOf is what a member's objects look like in an answer.
func answerOf(m *member, anchors int, a, before, b string) (items []listed) {
	add := func(name string, labels map[string]string) {
		var o listed
		o.Metadata.Name, o.Metadata.UID, o.Metadata.Labels = name, m.name+name, labels
		labels["of"] = m.plain()
		o.Metadata.Annotations = map[string]string{"federator.dev/member": m.name}
		items = append(items, o)
	}
	for n := range anchors {
		add(fmt.Sprint("anchor-", n), map[string]string{})
	}
	add("pair-a", map[string]string{"n": a, "before": before})
	add("pair-b", map[string]string{"n": b})
	return items
}

// TestJudge_SeesWhatIsWrongWithAnAnswer: an answer that is empty, of another member, or of two moments.
func TestJudge_SeesWhatIsWrongWithAnAnswer(t *testing.T) {
	one, two := &member{name: "fleet/one"}, &member{name: "fleet/two"}
	foreign := answerOf(two, anchors, "1", "0", "1")
	foreign[3].Metadata.Annotations = map[string]string{"federator.dev/member": one.name}
	twice := answerOf(two, anchors, "1", "0", "1")
	twice[3].Metadata.UID = twice[4].Metadata.UID
	whole := answerOf(one, anchors, "7", "6", "7")
	for name, c := range map[string]struct {
		items     []listed
		notSynced string
		problem   string // "" none
		partial   bool
	}{
		"whole":                 {items: append(answerOf(two, anchors, "5", "4", "4"), whole...)},
		"empty":                 {items: whole, problem: "empty: 0 of"},
		"empty, and says so":    {items: whole, notSynced: `{"fleet/two":{}}`, partial: true},
		"some, and says so":     {items: append(answerOf(two, 3, "5", "4", "4"), whole...), notSynced: `{"fleet/two":{}}`, problem: "empty: 3 of"},
		"of two moments":        {items: append(answerOf(two, anchors, "5", "4", "3"), whole...), problem: "mixed: fleet/two has a pair"},
		"of another member":     {items: append(foreign, whole...), problem: "says that it is of two"},
		"one object, two names": {items: append(twice, whole...), problem: "mixed: anchor-4"},
	} {
		partial, problems := judge([]*member{one, two}, c.items, c.notSynced)
		text := strings.Join(problems, "; ")
		if (c.problem == "") != (text == "") || !strings.Contains(text, c.problem) || partial != c.partial {
			t.Errorf("%s: partial %t, %q", name, partial, text)
		}
	}
}
