// Package projection is what processes that share a fleet tell each other of objects: not the objects, but what
// policies read of them. A projection of an object has what it contributes to views, and what policies read of it
// through data.fleet; it is written by the process that judges the object, which has evaluated it, and read by others,
// which evaluate nothing.
//
// A kind's projection is named by a digest, which is the same in two processes exactly when their policies read the
// same of the kind: a process that meets another digest knows that it does not know.
//
// Plans are immutable but for what they remember; any number of goroutines may use them.
package projection

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
)

// View is a view to which objects contribute.
type View struct {
	Name string // see ViewName
	ID   uint32 // in the engine
	Pkg  *module.Package
}

// ViewName names a view by what its contributions follow from, in any process: the fingerprint of its package, its name,
// the API versions that the package pins, and whether it is an index of the whole fleet.
func ViewName(fingerprint, name string, pins map[aggregate.Kind]string, ofFleet bool) string {
	sum := sha256.New()
	text := func(s string) { sum.Write([]byte(strconv.Quote(s))) }
	text(fingerprint)
	text(name)
	for _, kind := range slices.Sorted(maps.Keys(pins)) {
		text(string(kind))
		text(pins[kind])
	}
	text(strconv.FormatBool(ofFleet))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:9])
}

// Plan is what policies read of objects that they do not judge.
type Plan struct {
	fleet []map[module.KindRef]*mask.Mask
	views []View

	mu    sync.Mutex // guards kinds
	kinds map[aggregate.Kind]*Kind
}

// NewPlan returns the plan of policies that read objects under masks, and views.
func NewPlan(fleet []map[module.KindRef]*mask.Mask, views []View) *Plan {
	return &Plan{fleet: fleet, views: views, kinds: map[aggregate.Kind]*Kind{}}
}

// Kind is the projection of a kind.
type Kind struct {
	Digest string     // "" where nothing is read
	Mask   *mask.Mask // what is read through data.fleet; nil for nothing, not even whether an object is there
	Views  []View     // by name, each once

	Names  interest.Space   // of the kind's objects
	Spaces []interest.Space // of the views
}

// Find returns the view of an identity, nil if there is none.
func (p *Plan) Find(identity string) *View {
	if i := slices.IndexFunc(p.views, func(v View) bool { return v.Name == identity }); i >= 0 {
		return &p.views[i]
	}
	return nil
}

// Of returns the projection of a kind.
func (p *Plan) Of(kind aggregate.Kind) *Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[kind]
	if k == nil {
		k = p.find(kind)
		p.kinds[kind] = k
	}
	return k
}

func (p *Plan) find(kind aggregate.Kind) *Kind {
	k := &Kind{}
	for _, reads := range p.fleet {
		for of, m := range reads {
			if of.Kind == kind {
				k.Mask = mask.Union(k.Mask, m)
			}
		}
	}
	for _, v := range p.views {
		if v.Pkg.HasKind(kind) && !slices.ContainsFunc(k.Views, func(x View) bool { return x.Name == v.Name }) {
			k.Views = append(k.Views, v)
		}
	}
	if k.Mask == nil && len(k.Views) == 0 {
		return k
	}
	slices.SortFunc(k.Views, func(a, b View) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	k.Names = interest.Names(kind)
	for _, v := range k.Views {
		k.Spaces = append(k.Spaces, interest.View(v.Name))
	}
	sum := sha256.New()
	sum.Write(appendMask([]byte(format+strconv.Quote(string(kind))), k.Mask))
	for _, v := range k.Views {
		sum.Write([]byte(strconv.Quote(v.Name)))
	}
	k.Digest = base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:18])
	return k
}

// format is of the bodies of projections: a process that writes others has other digests.
const format = "1"

// appendMask writes a mask so that masks are equal exactly when they read the same.
func appendMask(to []byte, m *mask.Mask) []byte {
	switch {
	case m == nil:
		return append(to, '-')
	case m.All:
		return append(to, '*')
	}
	elem := appendMask(nil, m.Elem)
	to = append(to, '{')
	for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
		if child := appendMask(nil, m.Child(key)); string(child) != string(elem) {
			to = append(strconv.AppendQuote(to, key), child...)
		}
	}
	return append(append(to, elem...), '}')
}

// covers reports whether a projection has all that another has.
func (k *Kind) covers(other *Kind) bool {
	if !k.Mask.Covers(other.Mask) {
		return false
	}
	for _, v := range other.Views {
		if !slices.ContainsFunc(k.Views, func(x View) bool { return x.Name == v.Name }) {
			return false
		}
	}
	return true
}

// Beside are the projections of policies that are judged beside those of a state: peers export what the state's
// policies read.
type Beside struct{ Plan, Of *Plan }

// Reads implements fleetview.Projections.
func (b Beside) Reads(kind aggregate.Kind) bool { return b.Plan.Reads(kind) }

// Knows implements fleetview.Projections.
func (b Beside) Knows(kind aggregate.Kind, version string) bool {
	if b.Plan.Knows(kind, version) {
		return true
	}
	exported := b.Of.Of(kind)
	return exported.Digest == fleetview.Projection(version) && exported.covers(b.Plan.Of(kind))
}

// Reads implements fleetview.Projections.
func (p *Plan) Reads(kind aggregate.Kind) bool { return p.Of(kind).Digest != "" }

// Knows implements fleetview.Projections.
func (p *Plan) Knows(kind aggregate.Kind, version string) bool {
	digest := p.Of(kind).Digest
	return digest == "" || digest == fleetview.Projection(version)
}
