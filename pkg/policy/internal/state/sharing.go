package state

import (
	"sync"
	"weak"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Sharing finds violations that are equal to others that are held, so that they are kept
// once: what a policy says of one Pod of a Deployment it says of all of them, in whichever
// evaluation. It keeps none itself, and knows of the last ones only. The zero value is ready;
// any number of goroutines may use it.
type Sharing struct {
	mu    sync.Mutex
	known map[uint16]weak.Pointer[[]verdict.Violation] // by a part of their digest
}

// Found returns the outcome of an evaluation that found violations.
func (s *Sharing) Found(list []verdict.Violation) *Outcome {
	for i := range list {
		if list[i].Remedy != nil { // it names the subject, as a rule
			return &Outcome{found: &list}
		}
	}
	key := digest(list)
	s.mu.Lock()
	defer s.mu.Unlock()
	if same := s.known[key].Value(); same != nil && verdict.SameViolations(*same, list) {
		return &Outcome{found: same}
	}
	if s.known == nil {
		s.known = map[uint16]weak.Pointer[[]verdict.Violation]{}
	}
	s.known[key] = weak.Make(&list)
	return &Outcome{found: &list}
}

func digest(list []verdict.Violation) uint16 {
	var d xxhash.Digest
	d.Reset()
	for i := range list {
		v := &list[i]
		_, _ = d.WriteString(v.Msg) // neither returns an error
		_, _ = d.Write(v.Details)
	}
	return uint16(d.Sum64())
}
