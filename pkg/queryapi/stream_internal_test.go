package queryapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/queryapi/internal/fanout"
)

// TestCheckSession_IsOfTheUserAndItsGroups: what a stream reads is authorized by those that it began with.
func TestCheckSession_IsOfTheUserAndItsGroups(t *testing.T) {
	was := &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"eu", "ops"}}
	for name, test := range map[string]struct {
		now  *user.DefaultInfo
		err  error
		ends bool
	}{
		"the same":         {now: &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"ops", "eu"}}},
		"fewer groups":     {now: &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"eu"}}, ends: true},
		"another group":    {now: &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"eu", "us"}}, ends: true},
		"another user":     {now: &user.DefaultInfo{Name: "bob", UID: "1", Groups: was.Groups}, ends: true},
		"another of these": {now: &user.DefaultInfo{Name: "ann", UID: "2", Groups: was.Groups}, ends: true},
		"nobody":           {err: errors.New("no"), ends: true},
	} {
		s := &Server{authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: test.now}, test.now != nil, test.err
		})}
		r := httptest.NewRequest(http.MethodGet, "/query/v1/stream", nil)
		ctx := context.WithValue(apirequest.WithUser(r.Context(), was), credentialsKey{}, r)
		if why := s.checkSession(r.WithContext(ctx)); (why != "") != test.ends {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// silent is a Notifier whose own part of an answer never changes.
type silent struct{}

func (silent) Serve(http.ResponseWriter, *http.Request, Caller) error { return nil }
func (silent) Changes() <-chan struct{}                               { return nil }

// silentSharer is silent where other processes have parts of the answer.
type silentSharer struct{ silent }

func (silentSharer) ServeShared(http.ResponseWriter, *http.Request, Caller, SharedFleet) error {
	return nil
}

// TestElsewhere_IsForWhatOtherProcessesAnswer: a question to several processes is asked again within two seconds, as nobody says
// what has changed at others.
func TestElsewhere_IsForWhatOtherProcessesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{queries: map[string]Query{"own": silent{}, "shared": silentSharer{}}}
		if s.elsewhere("/query/v1/shared") != nil {
			t.Error("a process that has the fleet alone waits for others")
		}
		s.pulse = fanout.NewPulse()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.pulse.Run(ctx, func() <-chan struct{} { return nil })
		}()
		defer func() { stop(); <-done }()
		if s.elsewhere("/query/v1/own") != nil || s.elsewhere("/fleet/apis") != nil {
			t.Error("what this process answers itself waits for others")
		}
		began := time.Now()
		if <-s.elsewhere("/query/v1/shared"); time.Since(began) > 2*time.Second {
			t.Errorf("a change elsewhere shows after %v", time.Since(began))
		}
	})
}
