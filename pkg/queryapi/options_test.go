package queryapi_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/queryapi"
)

// valid are options that New takes.
func valid(t *testing.T) queryapi.Options {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return queryapi.Options{Index: newIndex(t), Fleet: served, Logger: slog.New(slog.DiscardHandler), Listener: l, Hub: hub.RESTConfig()}
}

type reviewer func(member string, review *authorizationv1.SubjectAccessReview) (bool, error)

func (f reviewer) Review(_ context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
	return f(member, review)
}

func TestOptions_AreValidated(t *testing.T) {
	s, err := queryapi.New(valid(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("a closed server runs")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	yes := reviewer(func(string, *authorizationv1.SubjectAccessReview) (bool, error) { return true, nil })
	for name, change := range map[string]func(*queryapi.Options){
		"no index":                 func(o *queryapi.Options) { o.Index = nil },
		"no fleet":                 func(o *queryapi.Options) { o.Fleet = nil },
		"no logger":                func(o *queryapi.Options) { o.Logger = nil },
		"no listener":              func(o *queryapi.Options) { o.Listener = nil },
		"neither hub nor local":    func(o *queryapi.Options) { o.Hub = nil },
		"hub and local":            func(o *queryapi.Options) { o.Local = true },
		"certificate without key":  func(o *queryapi.Options) { o.TLS.CertFile = missing },
		"missing certificate":      func(o *queryapi.Options) { o.TLS.CertFile, o.TLS.KeyFile = missing, missing },
		"TLS 1.1":                  func(o *queryapi.Options) { o.TLS.MinVersion = tls.VersionTLS11 },
		"missing authority":        func(o *queryapi.Options) { o.Authentication.ClientCAFile = missing },
		"empty audience":           func(o *queryapi.Options) { o.Authentication.Audiences = []string{""} },
		"tokens for too long":      func(o *queryapi.Options) { o.Authentication.TokenTTL = 11 * time.Second },
		"grants for too long":      func(o *queryapi.Options) { o.Authorization.AllowTTL = 31 * time.Second },
		"denials for too long":     func(o *queryapi.Options) { o.Authorization.DenyTTL = 31 * time.Second },
		"members without prefix":   func(o *queryapi.Options) { o.Authorization.Members = yes },
		"prefix without members":   func(o *queryapi.Options) { o.Authorization.UserPrefix = "fed:" },
		"prefix of the system":     func(o *queryapi.Options) { o.Authorization.Members, o.Authorization.UserPrefix = yes, "system:" },
		"local certificates":       func(o *queryapi.Options) { o.Hub, o.Local, o.Authentication.ClientCAFile = nil, true, missing },
		"local priorities":         func(o *queryapi.Options) { o.Hub, o.Local, o.Fairness.Priority = nil, true, true },
		"audit policy without log": func(o *queryapi.Options) { o.Audit.PolicyFile = missing },
		"missing audit policy":     func(o *queryapi.Options) { o.Audit = queryapi.Audit{PolicyFile: missing, LogFile: missing} },
		"negative limit":           func(o *queryapi.Options) { o.Limits.Drain = -1 },
		"negative requests":        func(o *queryapi.Options) { o.Fairness.MaxInFlight = -1 },
		"question of ours":         func(o *queryapi.Options) { o.Queries = map[string]queryapi.Query{"count": whoami} },
		"name of a question":       func(o *queryapi.Options) { o.Queries = map[string]queryapi.Query{"a/b": whoami} },
		"segments of a question":   func(o *queryapi.Options) { o.Queries = map[string]queryapi.Query{"a/{b}/{c}": whoami} },
		"same paths": func(o *queryapi.Options) {
			o.Queries = map[string]queryapi.Query{"a/{b}": whoami, "a/{c}": whoami}
		},
		"value without a name": func(o *queryapi.Options) { o.Queries = map[string]queryapi.Query{"a/{}": whoami} },
		"no question":          func(o *queryapi.Options) { o.Queries = map[string]queryapi.Query{"a": nil} },
	} {
		o := valid(t)
		change(&o)
		if s, err := queryapi.New(o); err == nil {
			t.Errorf("%s: accepted", name)
			s.Close()
		}
	}
}
