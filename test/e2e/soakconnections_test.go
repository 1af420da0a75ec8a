package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"

	"federator.dev/federator/test/hostile"
)

// tap puts a proxy between federator and a Cluster, which attacks connections.
func (s *soak) tap(t *testing.T, name string) error {
	p, err := hostile.Listen(s.of(name).DirectRESTConfig(), nil)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	s.taps[name] = p
	s.tapped[name], err = p.Kubeconfig()
	return err
}

// kubeconfig leads to a Cluster, through its tap where it has one.
func (s *soak) kubeconfig(name string) []byte {
	if s.taps[name] != nil {
		return s.tapped[name]
	}
	return s.of(name).Kubeconfig()
}

// attack begins one of the attacks that say nothing false of objects: what is held stays
// comparable.
func (s *soak) attack(name string) error {
	for range 100 {
		classes := hostile.ConnectionClasses()
		class := classes[s.rng.IntN(len(classes))]
		l := class.Draw(rand.New(rand.NewPCG(s.rng.Uint64(), 0)))
		if !l.Exact {
			continue
		}
		s.done["attack "+class.Name]++
		s.taps[name].SetAttacks(s.rng.Uint64()|1, l)
		return nil
	}
	return fmt.Errorf("no attack says nothing false")
}

// heal ends what is done to connections through a tap.
func (s *soak) heal(name string) { s.taps[name].SetAttacks(s.rng.Uint64() | 1) }

// refusing has every second request come later.
var refusing = &hostile.Attack{Answer: func(w http.ResponseWriter, _ *http.Request, c *hostile.Call) bool {
	if c.Rand(c.Path).IntN(2) == 0 {
		return false
	}
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`) // the client may be gone
	return true
}}
