package queryapi

import (
	"maps"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/queryapi/internal/route"
)

// wire puts the parts behind the chain.
func (s *Server) wire() {
	s.questions = maps.Clone(s.options.Questions)
	s.objects = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, s.log, apierrors.NewNotFound(schema.GroupResource{}, ""))
	})
}

func (s *Server) discover(_ http.ResponseWriter, _ *http.Request, target route.Target) error {
	return apierrors.NewNotFound(schema.GroupResource{}, target.Path)
}
