package authz_test

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// BenchmarkGrants is what a request over 100 members costs whose answers are
// kept: for a caller who may read all, and for one who was granted each member
// by name.
func BenchmarkGrants(b *testing.B) {
	var members []string
	for i := range 100 {
		members = append(members, fmt.Sprintf("ns-%d/member-%d", i%10, i))
	}
	for name, allow := range map[string]func(*authorizationv1.ResourceAttributes) bool{
		"all":     func(*authorizationv1.ResourceAttributes) bool { return true },
		"by-name": func(a *authorizationv1.ResourceAttributes) bool { return a.Name != "" },
	} {
		b.Run(name, func(b *testing.B) {
			a, err := authz.New(authz.Options{
				Resources: everywhere(resources),
				Now:       newClock().Now,
				Reviewer: hubFunc(func(_ context.Context, s *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
					return allow(s.ResourceAttributes), nil
				}),
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				g, err := a.Grants(b.Context(), ann, "list", resources[0], members, "", "")
				if err != nil || g.Empty() {
					b.Fatalf("%+v, %v", g, err)
				}
			}
		})
	}
}
