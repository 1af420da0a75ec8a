package authz_test

import (
	"testing"
	"time"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// TestGrants_DigestIsOfWhatIsEqual, whenever it was decided.
func TestGrants_DigestIsOfWhatIsEqual(t *testing.T) {
	in := func(namespaces ...string) *authz.Grants {
		return authz.NewGrants(map[string]authz.MemberGrant{"a": {Namespaces: namespaces}}, time.Time{})
	}
	everywhere := authz.NewGrants(map[string]authz.MemberGrant{"a": {All: true}}, time.Time{})
	all := []*authz.Grants{
		nil, authz.NewGrants(nil, time.Unix(1, 0)), authz.Everything(time.Time{}), authz.Everything(time.Unix(1, 0)), everywhere,
		in("x"), in("y"), in("x", "y"), in("y", "x", "x"), in("xy"), in("x").ServedAs("pods"), in("x").ServedAs("nodes"), in("y").ServedAs("pods"),
		authz.NewGrants(map[string]authz.MemberGrant{"a": {Namespaces: []string{"x"}}, "b": {All: true}}, time.Time{}),
	}
	for i, g := range all {
		for j, other := range all {
			if equal := g.Digest() == other.Digest(); equal != g.Equal(other) {
				t.Errorf("%d and %d: the same digest: %t, equal: %t", i, j, equal, g.Equal(other))
			}
		}
	}
}
