package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// moment is the time of a state: as of when it is, and what the clock showed.
type moment struct {
	asOf, clock int64
	documents   *worldDocuments // from outside the fleet; nil: nothing is known of them
}

// at is the moment of the next state, when the clock shows a time.
func (m moment) at(clock int64) moment {
	if clock > m.clock || m.clock-clock > 5 {
		m.clock = clock
	}
	if m.clock > m.asOf {
		m.asOf = m.clock
	}
	return m
}

// worldStart is when histories begin.
var worldStart = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Unix()

func worldInstant(after int) string {
	return time.Unix(worldStart+int64(after), 0).UTC().Format(time.RFC3339)
}

var instantKey = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)

// instantIn returns the instant that a path into data.fleet.passed names.
func instantIn(p storage.Path) (at int64, is bool, err error) {
	if len(p) < 2 || p[0] != "fleet" || p[1] != "passed" {
		return 0, false, nil
	}
	if len(p) != 3 || !instantKey.MatchString(p[2]) {
		return 0, true, errors.New("no instant")
	}
	t, err := time.Parse(time.RFC3339, p[2])
	return t.Unix(), true, err
}

// timed is a land where time passes, and where objects and policies name instants.
var timed = &land{
	kinds: worldKinds, versions: heldVersions(worldKinds), member: smallMember, parameters: smallParameters,
	object: func(r *rand.Rand, kind aggregate.Kind) (namespace, name string, object map[string]any) {
		namespace, name, object = smallObject(r, kind)
		if spec, ok := object["spec"].(map[string]any); ok && r.IntN(6) > 0 {
			spec["until"] = worldInstant(10 * r.IntN(12))
			if r.IntN(40) == 0 {
				spec["until"] = pick(r, "", "tomorrow", "2026-01-02T00:00:10+00:00", "2026-02-30T00:00:00Z")
			}
		}
		return namespace, name, object
	},
	passes: func(r *rand.Rand) int64 {
		switch r.IntN(8) {
		case 0:
			return 0
		case 1:
			return -int64(r.IntN(8))
		case 2:
			return -int64(6 + r.IntN(50))
		}
		return int64(r.IntN(40))
	},
}

// time is a condition on the time.
func (g *generator) time(object bool) {
	keys := []string{fmt.Sprintf("%q", worldInstant(10*g.r.IntN(12)))}
	if object {
		keys = append(keys, "input.object.spec.until", "input.object.spec.until",
			`time.format([time.parse_rfc3339_ns(input.object.spec.until) + 20000000000, "UTC", "RFC3339"])`)
	}
	key := pick(g.r, keys...)
	switch g.r.IntN(5) {
	case 0, 1:
		g.line("data.fleet.passed[%s]", key)
	case 2:
		g.line("not data.fleet.passed[%s]", key)
	case 3:
		t := g.fresh("t")
		g.line("%s := %s", t, key)
		g.line("data.fleet.passed[%s]", g.use(t))
	case 4:
		if g.plain || !object {
			g.line("data.fleet.passed[%s] == true", key)
			return
		}
		o := g.fresh("o")
		g.line(`some %s in data.fleet.by_name[%s]["shop"]["web"]`, o, g.kind())
		g.line("data.fleet.passed[%s.spec.until]", o)
	}
}

// advance lets time alone take effect. Where the engine says that nothing is due, its state must be that of the
// present time.
func (h *history) advance(ctx context.Context, engine *policy.Engine, o *oracle, bindings []policy.Binding, was moment, clock int64) (*policy.Changes, error) {
	changes, err := engine.Advance(ctx)
	if err != nil || changes != nil {
		return changes, err
	}
	s := engine.State()
	former, next, err := o.versions(ctx, s.Snapshot, bindings, was.at(clock))
	if err != nil {
		return nil, err
	}
	now := inEffect(s.Snapshot, bindings, former, next)
	if err := agree(s, bindings, now, nil); err != nil {
		return nil, fmt.Errorf("nothing is due at %v, says a state of %v: %w", time.Unix(clock, 0).UTC(), s.AsOf, err)
	}
	return nil, nil
}

// TestEngine_EqualsFullEvaluationOfTime plays histories in which time passes, and in which the clock is set back.
func TestEngine_EqualsFullEvaluationOfTime(t *testing.T) {
	t.Parallel()
	timed.playAll(t, 400, generated(t, func(seed uint64) (policySet, error) { return generate(seed, true) }))
}
