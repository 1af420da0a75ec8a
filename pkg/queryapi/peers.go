package queryapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/fanout"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// Peers says who shares the fleet. It is called on every request, from many goroutines.
type Peers interface {
	// Assignment returns the newest assignment: the same one until it changes.
	Assignment() *Assignment
}

// Assignment is who shares the fleet, and who judges which of its members.
type Assignment = fanout.Assignment

// Peer is another process of the fleet.
type Peer = fanout.Peer

// newFanout makes what answers for the whole fleet; nil where the process has it alone.
func (s *Server) newFanout(own func(http.ResponseWriter, *http.Request) error, o fanout.Options) (err error) {
	if s.options.Peers == nil {
		return nil
	}
	if s.minted, err = fanout.NewRevisions(s.options.Minted); err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	o.Assignment, o.Own, o.Revisions, o.Objects, o.Log = s.options.Peers.Assignment, own, s.minted, s.objects, s.log
	o.Readable = s.readableMembers
	if s.shared, err = fanout.New(o); err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	return nil
}

// ExtendMinted adds revisions to Options.Minted for when these are used up. They must be above them.
func (s *Server) ExtendMinted(r aggregate.Range) error {
	if s.minted == nil {
		return errors.New("query API: no revisions are minted without peers")
	}
	if err := s.minted.Extend(r); err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	return nil
}

// MintedLeft returns how many revisions are left of Options.Minted and what was added to them.
func (s *Server) MintedLeft() uint64 {
	if s.minted == nil {
		return 0
	}
	return s.minted.Unused()
}

// PeersHandler serves the other processes of the fleet, and answers only for what this one has. It
// trusts the request headers X-Remote-User, -Uid, -Group and -Extra-*: it must be reached only by
// TLS with client certificates that no one but the peers have. Nil without Options.Peers.
func (s *Server) PeersHandler() http.Handler { return s.peers }

// peersChain is chain for requests of peers, which have authenticated, admitted and audited
// their callers.
func (s *Server) peersChain() (http.Handler, error) {
	identity, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
	if err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.servePeer(w, r); err != nil {
			writeError(w, r, s.log, err)
		}
	}))
	h = s.withWatchEnd(h)
	h = s.withLoading(h)
	h = genericapifilters.WithAuthentication(h, identity, http.HandlerFunc(s.unauthenticated), nil, nil)
	h = withHubError(h)
	h = s.withTracking(h)
	h = genericapifilters.WithWarningRecorder(h)
	h = withAnswerDone(genericfilters.WithTimeoutForNonLongRunningRequests(h, longRunning))
	h = genericapifilters.WithRequestDeadline(h, nil, nil, longRunning, scheme.Codecs, s.options.Limits.Request)
	h = s.withWriteDeadline(h)
	h = route.Filter(h, func(w http.ResponseWriter, r *http.Request, err error) { writeError(w, r, s.log, err) })
	h = genericapifilters.WithRequestReceivedTimestamp(h)
	return s.withObservation(h), nil
}

// servePeer answers a peer.
func (s *Server) servePeer(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return newStatusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "peers only read")
	}
	target, _ := route.TargetFrom(r.Context())
	info, _ := apirequest.RequestInfoFrom(r.Context())
	c := s.callerOf(r.Context())
	if c.member != "" {
		if m, ok := s.options.Index.Snapshot().Member(c.member); !ok || m.Role != aggregate.Judge {
			return unavailable(fmt.Sprintf("member %s is judged by another process", c.member))
		}
		return s.serveOwn(w, r, target, info)
	}
	ask, err := part.Parse(r.Header)
	if err != nil || ask == nil || !info.IsResourceRequest {
		return apierrors.NewBadRequest("a peer asks for no part")
	}
	r = r.WithContext(part.With(r.Context(), ask))
	return s.objects.Serve(w, r, s.callerOf(r.Context()))
}

func unavailable(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// serveShared serves what other processes have a part in, and reports whether it did.
func (s *Server) serveShared(w http.ResponseWriter, r *http.Request, target route.Target, info *apirequest.RequestInfo) (served bool, err error) {
	if s.shared == nil || target.Prefix == "" && !strings.HasPrefix(target.Path, route.Query+"/") {
		return false, nil
	}
	c := s.callerOf(r.Context())
	switch {
	case c.member != "":
		peer, err := s.judgeOf(r.Context(), c, info)
		if err != nil || peer == nil {
			return err != nil, err
		}
		if wsstream.IsWebSocketRequest(r) {
			return true, fanout.NotImplemented("WebSockets of a member that another process judges")
		}
		return true, s.shared.Forward(w, r, peer, c.user)
	case info.IsResourceRequest:
		s.labelResource(r, info)
		return true, s.shared.Serve(w, r, c.user)
	}
	return false, nil
}

// judgeOf returns the peer that answers for the member of a request, nil where this process does.
func (s *Server) judgeOf(ctx context.Context, c caller, info *apirequest.RequestInfo) (*Peer, error) {
	m, held := s.options.Index.Snapshot().Member(c.member)
	if held && m.Role == aggregate.Judge {
		return nil, nil //nolint:nilnil // this process
	}
	peer, self, known := s.options.Peers.Assignment().Judge(c.member)
	if peer != nil || self || !known || held && m.Role == aggregate.Standby {
		return peer, nil
	}
	// Whether there is such a member is not for everybody to know.
	if info.IsResourceRequest {
		if err := c.checkAccess(ctx, info); err != nil {
			return nil, err
		}
	} else if any, err := s.authorizer.AnyGrant(ctx, c.user, c.member); err != nil {
		return nil, err
	} else if !any {
		return nil, memberForbidden(c.user, c.member)
	}
	return nil, unavailable(fmt.Sprintf("no process that lives judges member %s", c.member))
}

// readableMembers returns those of some members in which a user may read a resource.
func (s *Server) readableMembers(ctx context.Context, u user.Info, verb string, gr schema.GroupResource, members []string) ([]string, error) {
	grants, err := caller{server: s, user: u}.grants(ctx, verb, gr, members)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, member := range members {
		if !grants.Member(member).Empty() {
			out = append(out, member)
		}
	}
	return out, nil
}

// leftFleet reports whether a member is none of the fleet any more.
func (s *Server) leftFleet(member string) bool {
	_, _, known := s.options.Peers.Assignment().Judge(member)
	return !known
}
