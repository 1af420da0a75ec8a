package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// worldDocuments are what is outside the fleet: documents by source and key.
type worldDocuments struct {
	Sources map[string]map[string]worldDocument
}

// worldDocument is one of them: with neither it is not known at all.
type worldDocument struct {
	Is      any // nil: there is no content
	Problem string
}

// line is what a history says of them.
func (d *worldDocuments) line() string {
	if d == nil {
		return ""
	}
	text, err := json.Marshal(d)
	return fmt.Sprintf("  documents %s %v\n", text, err)
}

// outside lets documents change in a step, or only them.
func (l *land) outside(r *rand.Rand, s *step) {
	if l.documents == nil || r.IntN(3) == 0 {
		return
	}
	if s.Documents = l.documents(r); r.IntN(2) == 0 {
		s.Ops = nil
	}
}

// external is what the engine is given.
func (d *worldDocuments) external() *policy.External {
	of := map[string]map[string]policy.ExternalDocument{}
	for source, documents := range d.Sources {
		of[source] = map[string]policy.ExternalDocument{}
		for key, x := range documents {
			doc := policy.ExternalDocument{Problem: x.Problem}
			if x.Is != nil {
				text, err := canonical(x.Is)
				if err != nil {
					panic(err)
				}
				doc.JSON = text
			}
			of[source][key] = doc
		}
	}
	out, err := policy.NewExternal(of)
	if err != nil {
		panic(err)
	}
	return out
}

// tree is data.fleet.external.
func (d *worldDocuments) tree() map[string]any {
	out := map[string]any{}
	if d == nil {
		return out
	}
	for source, documents := range d.Sources {
		of := map[string]any{}
		for key, x := range documents {
			if x.Is != nil {
				of[key] = x.Is
			}
		}
		out[source] = of
	}
	return out
}

// doubts reports whether what is read below data.fleet.external is not known.
func (d *worldDocuments) doubts(path []string) bool {
	if d == nil {
		return true
	}
	documents, ok := d.Sources[path[0]]
	if !ok {
		return true
	}
	if len(path) > 1 {
		return documents[path[1]].Problem != ""
	}
	for _, x := range documents {
		if x.Problem != "" {
			return true
		}
	}
	return false
}

// documented is a land with documents from outside, which change as the fleet does.
var documented = &land{
	kinds: worldKinds, versions: heldVersions(worldKinds), member: smallMember, object: smallObject, parameters: smallParameters, documents: randomDocuments,
}

func randomDocuments(r *rand.Rand) *worldDocuments {
	d := &worldDocuments{Sources: map[string]map[string]worldDocument{}}
	for _, source := range []string{"cmdb", "other"} {
		if r.IntN(8) == 0 {
			continue
		}
		d.Sources[source] = map[string]worldDocument{}
		for _, key := range []string{"owners", "shop", "web", "a.example"} {
			if r.IntN(3) > 0 {
				d.Sources[source][key] = randomDocument(r)
			}
		}
	}
	return d
}

func randomDocument(r *rand.Rand) (x worldDocument) {
	if r.IntN(4) == 0 {
		x.Problem = pick(r, "too old", "not there")
	}
	switch r.IntN(9) {
	case 0:
		if x.Problem == "" {
			x.Problem = "not read yet"
		}
	case 1:
		x.Is = pick[any](r, "shop", 7.0, true, false)
	case 2:
		x.Is = []any{"shop", "web"}
	default:
		of := map[string]any{}
		for _, field := range []string{"shop", "pay", "web", "db"} {
			switch r.IntN(4) {
			case 0:
				of[field] = pick[any](r, "x", "y", false)
			case 1:
				of[field] = map[string]any{"limit": float64(r.IntN(3))}
			}
		}
		x.Is = of
	}
	return x
}

// external is a condition on documents from outside.
func (g *generator) external(object bool, key func() string) {
	from := "data.fleet.external." + pick(g.r, "cmdb", "cmdb", "other", "nobody")
	own := key()
	if !object {
		own = `"shop"`
	}
	switch g.r.IntN(9) {
	case 0:
		g.line("not %s.owners[%s]", from, own)
	case 1:
		g.line("%s := %s.owners[%s]", g.use(g.fresh("d")), from, own)
	case 2:
		g.line("%s := %s[%s]", g.use(g.fresh("d")), from, own)
	case 3:
		g.line("not %s[%s].shop", from, own)
	case 4:
		g.line("some %s, %s in %s", g.use(g.fresh("k")), g.use(g.fresh("d")), from)
	case 5:
		c := g.fresh("c")
		g.line("%s := count(%s)", g.use(c), from)
	case 6:
		f, x := g.fresh("f"), g.fresh("x")
		g.line("some %s, %s in %s.owners", f, x, from)
		g.line("%s.limit > %d", x, g.r.IntN(2))
		g.use(f)
	case 7:
		g.line(`object.get(%s.owners, [%s, "limit"], 0) > %d`, from, own, g.r.IntN(2))
	case 8:
		g.line("%s.owners[0] == %q", from, pick(g.r, "shop", "web"))
	}
}

// TestEngine_EqualsFullEvaluationOfExternalDocuments plays histories in which documents from outside the fleet change, are not known
// any more, and come and go with their sources.
func TestEngine_EqualsFullEvaluationOfExternalDocuments(t *testing.T) {
	t.Parallel()
	documented.playAll(t, 300, generated(t, func(seed uint64) (policySet, error) {
		return (&generator{r: rand.New(rand.NewPCG(seed, 1)), asks: true}).set()
	}))
}
