package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// TestAgent_RenewsByTheTimeThatPasses since it got its certificate: where the middle of that one's life seems to be past, as
// its clock is ahead, it neither renews without pause nor too late.
func TestAgent_RenewsByTheTimeThatPasses(t *testing.T) {
	const minute = time.Minute
	const rounding = time.Second / 2 // of half a life: the times of certificates are whole seconds
	for _, tc := range []struct{ life, ahead, during, atLeast, atMost time.Duration }{
		{life: 10 * minute, ahead: 0, during: time.Hour, atLeast: 5 * minute, atMost: 7 * minute},
		{life: 10 * minute, ahead: 5 * minute, during: time.Hour, atLeast: 2 * minute, atMost: 4 * minute},
		{life: 10 * minute, ahead: 9 * minute, during: time.Hour, atLeast: 20 * time.Second, atMost: 2 * minute},
		{life: 10 * minute, ahead: time.Hour, during: time.Hour, atLeast: 5 * minute, atMost: 7 * minute},
		{life: 4 * time.Second, ahead: 4*time.Second - 1, during: minute, atLeast: time.Second, atMost: 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScripted(t)
			s.life, s.ago = tc.life, tc.ahead
			ctx, cancel := context.WithTimeout(t.Context(), tc.during)
			defer cancel()
			ok(t, s.run(ctx, &inMemory{}, slog.DiscardHandler, agent.Options{Token: s.token()}))
			issued := s.certificates()
			if len(issued) < int(tc.during/tc.atMost) {
				t.Errorf("%+v: %d certificates", tc, len(issued))
			}
			for i := 1; i < len(issued); i++ {
				if d := issued[i].Sub(issued[i-1]); d < tc.atLeast-rounding || d > tc.atMost {
					t.Errorf("%+v: it has renewed after %s", tc, d)
				}
			}
		})
	}
}

// TestAgent_WhoseCertificateIsOfNoUseEnds, as somebody has to act: it was away for too long, or its Member is gone.
func TestAgent_WhoseCertificateIsOfNoUseEnds(t *testing.T) {
	for name, lose := range map[string]func(*scripted){
		"expired": func(s *scripted) {
			s.set(func() { s.away = true })
			s.cut()
			time.Sleep(48 * time.Hour) // of virtual time
			s.set(func() { s.away = false })
		},
		"a deleted Member": func(s *scripted) {
			s.refuse(addressA, http.StatusForbidden)
			s.refuse(addressB, http.StatusForbidden)
		},
		// Renewals have failed for so long that the next is far off, and the first that the refusals cause is lost.
		"a deleted Member, while no renewal is answered": func(s *scripted) {
			s.set(func() { s.away = true })
			s.cut()
			time.Sleep(20 * time.Hour)
			s.refuse(addressA, http.StatusForbidden)
			s.refuse(addressB, http.StatusForbidden)
			s.set(func() { s.away, s.silent = false, joining.RenewPath })
			time.Sleep(time.Minute)
			s.set(func() { s.silent = "" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScripted(t)
				done := make(chan error, 1)
				token := s.token()
				go func() {
					done <- s.run(t.Context(), &inMemory{}, slog.DiscardHandler, agent.Options{Token: token, ReadToken: func() (string, error) { return token, nil }})
				}()
				time.Sleep(time.Minute)
				lose(s)
				select {
				case err := <-done:
					if !errors.Is(err, agent.ErrRefused) {
						t.Error(err)
					}
				case <-time.After(10 * time.Minute):
					t.Error("it tries on")
				}
			})
		})
	}
}

// TestAgent_JoinsAgainWithANewToken once its certificate is of no use, without a restart.
func TestAgent_JoinsAgainWithANewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		token := s.token()
		read := func() (string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return token, nil
		}
		running.Go(func() {
			ok(t, s.run(ctx, &inMemory{}, slog.DiscardHandler, agent.Options{Token: token, ReadToken: read}))
		})
		time.Sleep(time.Minute)
		s.set(func() { s.away = true })
		s.cut()
		time.Sleep(48 * time.Hour)
		another := s.token()
		s.set(func() { token, s.away = another, false })
		time.Sleep(2 * time.Minute)
		if n := s.connections(addressA); n != 2 {
			t.Errorf("it has %d connections", n)
		}
	})
}

// TestAgent_KeepsLaterWhatCouldNotBeKept: the token is used up.
func TestAgent_KeepsLaterWhatCouldNotBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newScripted(t), &inMemory{fails: 5}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		ok(t, s.run(ctx, store, slog.DiscardHandler, agent.Options{Token: s.token()}))
		if store.saved != 1 || store.kept == nil {
			t.Errorf("it was kept %d times", store.saved)
		}
	})
}

// TestAgent_JoinsWithOneKey, however often it tries, and after a restart, so that it can be told from another who has its
// token.
func TestAgent_JoinsWithOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newScripted(t), &inMemory{}
		token := s.token()
		s.loses = 1 << 20
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			ok(t, s.run(ctx, store, slog.DiscardHandler, agent.Options{Token: token}))
			cancel()
		}
		s.set(func() { s.loses = 0 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ok(t, s.run(ctx, store, slog.DiscardHandler, agent.Options{Token: token}))
		if len(s.keys) < 10 || len(store.kept.Certificate) == 0 {
			t.Fatalf("it has tried %d times", len(s.keys))
		}
		for _, key := range s.keys {
			if !bytes.Equal(key, s.keys[0]) {
				t.Fatal("it came with another key")
			}
		}
	})
}
