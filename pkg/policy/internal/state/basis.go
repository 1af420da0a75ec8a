package state

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/projection"
)

// Member returns what is known of a member that policies see: as it is read here, or as its judge has told.
func (s *State) Member(name string) (aggregate.Member, bool) { return s.parts.Fleet.Member(name) }

// Judges reports whether a member is judged here.
func (s *State) Judges(member string) bool {
	m, ok := s.Snapshot.Member(member)
	return ok && m.Role == aggregate.Judge
}

// Basis is what is known in one process of an object that perhaps another one judges.
type Basis struct {
	// Text is a digest of all that policies read of the object, and of which cluster it is. It is the same in two processes if they know the
	// same.
	Text string

	projection string
	cluster    string             // the member's UID
	revision   aggregate.Revision // of the object; 0: there is none
	away       bool
}

// nothing is the digest of an object that is not known, or of which nothing is read.
const nothing = "nothing"

// Basis returns what is known of an object. last is what it has returned before, perhaps for another state: while that is so, nothing
// is read.
func (s *State) Basis(ref aggregate.Ref, last Basis) Basis {
	fleet := s.parts.Fleet
	now := Basis{projection: s.parts.Projections.Of(ref.Kind).Digest, away: fleet.Away(ref.Member)}
	if now.away {
		if scope, ok := fleet.Scope(ref.Member, ref.Kind); ok {
			now.projection = fleetview.Projection(scope.Version)
		}
	}
	if m, ok := fleet.Member(ref.Member); ok {
		now.cluster = m.UID
	}
	o, there := fleet.Get(ref)
	if there {
		now.revision = o.Revision()
	}
	now.Text = last.Text
	if now == last && last.Text != "" {
		return last
	}
	now.Text = now.read() + " " + s.digestOf(o, there, now.away)
	return now
}

// read says of which cluster what is read.
func (b *Basis) read() string { return b.projection + " " + strconv.Quote(b.cluster) }

func (s *State) digestOf(o aggregate.Object, there, away bool) string {
	if !there {
		return nothing
	}
	var body []byte
	if away {
		var err error
		if body, err = o.AppendBody(nil); err != nil {
			return "not known: " + err.Error()
		}
	} else {
		var some bool
		parts, w := &s.parts, projection.Writer{}
		if body, some = w.Append(nil, parts.Projections.Of(o.Ref().Kind), o, func(id uint32) *matview.View { return parts.ByID[id] }); !some {
			return nothing
		}
	}
	sum := sha256.New()
	sum.Write([]byte(strconv.Quote(o.UID())))
	for _, l := range o.Labels() {
		sum.Write([]byte(strconv.Quote(l.Key) + strconv.Quote(l.Value)))
	}
	sum.Write(body)
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:18])
}

// Supports reports whether what another process knows of an object, the text of its Basis, is so. wants reports whether that
// process is told of objects with some keys: of others it knows nothing.
func (s *State) Supports(ref aggregate.Ref, basis string, wants func(*interest.Keys) bool) bool {
	now := s.Basis(ref, Basis{})
	if now.Text == basis {
		return true
	}
	if basis != now.read()+" "+nothing || !s.parts.Exports {
		return false
	}
	var k interest.Keys
	s.Export().KeysOf(ref, &k)
	return !wants(&k)
}
