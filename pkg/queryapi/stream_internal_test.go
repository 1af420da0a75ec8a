package queryapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
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
