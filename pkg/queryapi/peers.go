package queryapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"

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
func (s *Server) newFanout(o fanout.Options) (err error) {
	if s.options.Peers == nil {
		return nil
	}
	if s.minted, err = fanout.NewRevisions(s.options.Minted); err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	o.Assignment, o.Revisions, o.Objects, o.Log = s.options.Peers.Assignment, s.minted, s.objects, s.log
	o.Readable = s.readableMembers
	s.pulse = fanout.NewPulse()
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
	return fanout.Alive(s.withEnd(s.withObservation(h))), nil
}

// withEnd ends requests of peers, whose listener is another's, with the server.
func (s *Server) withEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if of := s.running.Load(); of != nil {
			ctx = context.WithValue(ctx, shutdownKey{}, of.watches)
			defer context.AfterFunc(of.all, cancel)()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// servePeer answers a peer.
func (s *Server) servePeer(w http.ResponseWriter, r *http.Request) error {
	ask, err := part.Parse(r.Header)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := s.checkPeerMethod(r, ask); err != nil {
		return err
	}
	target, _ := route.TargetFrom(r.Context())
	info, _ := apirequest.RequestInfoFrom(r.Context())
	c := s.callerOf(r.Context())
	if c.member != "" {
		if !s.judges(c.member) && !s.holds(c.member) {
			return unavailable(fmt.Sprintf("member %s is held by other processes", c.member))
		}
		return s.serveOwn(w, r, target, info)
	}
	if ask != nil {
		return s.servePart(w, r.WithContext(part.With(r.Context(), ask)))
	}
	if s.isQuery(target) && s.answers(r, target) {
		return s.serveQuery(w, r, target)
	}
	return unavailable("this process does not hold what is asked for")
}

// answers reports whether this process answers a query that a peer has forwarded.
func (s *Server) answers(r *http.Request, target route.Target) bool {
	values := r.URL.Query()
	if member := values.Get("member"); s.judges(member) || s.holds(member) {
		return true
	}
	_, q := s.findQuery(r, strings.TrimPrefix(target.Path, route.Query+"/"))
	one, ok := q.(Answerer)
	return ok && one.Answers(values)
}

// judges reports whether this process judges a member.
func (s *Server) judges(member string) bool {
	m, ok := s.options.Index.Snapshot().Member(member)
	return ok && m.Role == aggregate.Judge
}

func (s *Server) isQuery(target route.Target) bool {
	return target.Member == "" && strings.HasPrefix(target.Path, route.Query+"/")
}

// servePart serves the part of this process of a request whose context has a part.Ask.
func (s *Server) servePart(w http.ResponseWriter, r *http.Request) error {
	info, _ := apirequest.RequestInfoFrom(r.Context())
	if info.IsResourceRequest {
		return s.objects.Serve(w, r, s.callerOf(r.Context()))
	}
	target, _ := route.TargetFrom(r.Context())
	ask := part.From(r.Context())
	ask.Left = s.leftFleet
	if r.URL.Path == factsPath {
		return s.serveFacts(w, r, ask)
	}
	if !s.isQuery(target) {
		return apierrors.NewBadRequest("there are no parts of this")
	}
	if _, q := s.findQuery(r, strings.TrimPrefix(target.Path, route.Query+"/")); q != nil {
		if q, ok := q.(PartServer); ok {
			return s.serveItems(w, r, q, ask)
		}
	}
	if isWatch(r) { // as what is posted is, too
		return s.watchPart(w, r, target, ask)
	}
	first := s.options.Index.First()
	for range partTries {
		before := part.NewHeader(first, s.options.Index.Snapshot(), ask)
		held := &heldResponse{header: http.Header{}}
		err := s.serveQuery(held, r, target)
		var status apierrors.APIStatus
		if errors.As(err, &status) && apierrors.IsForbidden(err) {
			refused := status.Status()
			before.Refused, err = &refused, nil
		}
		if err != nil {
			return err
		}
		before.Position = held.header.Get(positionHeader)
		if ask.Judged != nil {
			judged := part.JudgedHeader(first, ask)
			judged.Refused, judged.Position, before = before.Refused, before.Position, judged
		} else if after := part.NewHeader(first, s.options.Index.Snapshot(), ask); !slices.Equal(before.Members, after.Members) || before.Differs != after.Differs {
			continue // a member came or went
		}
		if ask.At != 0 {
			before.Revision = ask.At
		}
		out, err := part.AppendHeader(nil, before)
		if err != nil {
			return fmt.Errorf("query API: %w", err)
		}
		if before.Refused == nil {
			out = part.Append(out, part.ItemFrame, held.body)
		}
		w.Header().Set("Content-Type", part.ContentType)
		_, _ = w.Write(part.Append(out, part.End, nil)) // the peer may be gone
		return nil
	}
	return unavailable("members come and go")
}

// partTries is how often a part is made in which all members are to be the same throughout.
const partTries = 5

// heldResponse is a response that becomes a part.
type heldResponse struct {
	header http.Header
	body   []byte
}

// Header implements http.ResponseWriter.
func (h *heldResponse) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter: queries return their errors.
func (h *heldResponse) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (h *heldResponse) Write(b []byte) (int, error) {
	h.body = append(h.body, b...)
	return len(b), nil
}

// Sharer is a Query that answers for a fleet which several processes share. Others answer 501 there.
type Sharer interface {
	Query
	// ServeShared is Serve where several processes share the fleet.
	ServeShared(w http.ResponseWriter, r *http.Request, caller Caller, fleet SharedFleet) error
}

// SharedFleet is what a Sharer asks.
type SharedFleet interface {
	// Ask has every process, this one too, serve the query of the request with these parameters, for
	// the members that it judges: InPart is true there. Parts may be of any form; those in which
	// everything is forbidden are left out, all other errors are that of the request.
	Ask(query url.Values) (*Parts, error)
	// Pull has every process serve its part by ServePart, of the query of the request with these parameters and, where it is
	// posted, this body. Each gets the items as they arrive, one after another; its error ends it and is returned.
	Pull(query url.Values, posted []byte, each func(item []byte) error) (*Parts, error)
	// Judge reports whether this process judges a member, or may answer for it. Else Forward has the
	// process answer that does, or, where that is lost, one that holds the member, which may be this one.
	Judge(member string) bool
	Forward(member string) error
	// ForwardTo has a process answer by its ID ("": it is not known), which says itself whether the request is for it: the query is an Answerer. No
	// other stands in for it.
	ForwardTo(process string) error
	// Watch serves the watch of every process merged.
	Watch(of SharedWatch) error
}

// Answerer is a Query that one process answers, whichever is asked, where the parameters name no member.
type Answerer interface {
	Query
	// Answers reports whether this process does.
	Answers(query url.Values) bool
}

// Parts are what processes answer, and the members that none of them answers for.
type Parts = part.Answers

// sharedFleet implements SharedFleet for one request.
type sharedFleet struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	caller caller
	query  Query
}

// Ask implements SharedFleet.
func (f sharedFleet) Ask(query url.Values) (*Parts, error) {
	return f.server.shared.AskEveryone(f.r, f.caller.user, query)
}

// askPage is Ask for a page after a position, at a revision. What is for the merged answer is not for parts.
func (f sharedFleet) askPage(query url.Values, at aggregate.Revision, after aggregate.Position) (*Parts, error) {
	query = maps.Clone(query)
	for _, name := range []string{"continue", "require", "timeout", "timeoutSeconds"} {
		query.Del(name)
	}
	return f.server.shared.Ask(f.r, f.caller.user, query, at, after)
}

// Judge implements SharedFleet.
func (f sharedFleet) Judge(member string) bool {
	peer, self, known := f.server.options.Peers.Assignment().Judge(member)
	return f.server.judges(member) || self || !known || peer == nil && f.server.holds(member)
}

// Forward implements SharedFleet.
func (f sharedFleet) Forward(member string) error {
	here, err := f.server.forwardMember(f.w, f.r, f.caller, member)
	if err != nil || !here {
		return err
	}
	return f.query.Serve(f.w, f.r, f.caller)
}

// ForwardTo implements SharedFleet.
func (f sharedFleet) ForwardTo(process string) error {
	peer := f.server.options.Peers.Assignment().Peer(process)
	switch {
	case process == "":
		return unavailable("it is not known yet which process answers this")
	case peer == nil:
		return unavailable(fmt.Sprintf("process %s does not live", process))
	}
	err := f.server.shared.Forward(f.w, f.r, peer, f.caller.user)
	var lost *fanout.LostError
	if errors.As(err, &lost) {
		return unavailable(err.Error())
	}
	return err
}

// forwardMember has a peer answer a request about a member: its judge, or a process that stands by, where the judge
// does not answer. here is whether that is this process.
func (s *Server) forwardMember(w http.ResponseWriter, r *http.Request, c caller, member string) (here bool, err error) {
	a := s.options.Peers.Assignment()
	judge, _, _ := a.Judge(member)
	standby := a.Standby(member)
	if judge == nil && standby == nil {
		return false, s.unjudged(r.Context(), c, member)
	}
	var lost *fanout.LostError
	if judge != nil {
		if err = s.shared.Forward(w, r, judge, c.user); !errors.As(err, &lost) {
			return false, err
		}
		if r.ContentLength != 0 { // who was lost may have read some of it
			return false, unavailable(err.Error())
		}
	}
	if s.holds(member) {
		warning.AddWarning(r.Context(), "", standsIn(member, a.Self))
		return true, nil
	}
	if standby != nil {
		warning.AddWarning(r.Context(), "", standsIn(member, standby.ID))
		if err = s.shared.Forward(w, r, standby, c.user); !errors.As(err, &lost) {
			return false, err
		}
	}
	return false, unavailable(err.Error())
}

// standsIn says who answers for a member whose judge does not.
func standsIn(member, process string) string {
	return fmt.Sprintf("member %s is answered for by process %s, which stands by: the process that judges it does not answer", member, process)
}

// holds reports whether this process holds a member without judging it.
func (s *Server) holds(member string) bool {
	m, ok := s.options.Index.Snapshot().Member(member)
	return ok && m.Role.StandsBy()
}

// unjudged is the error for a member that nobody answers for. Whether there is such a member is not for
// everybody to know.
func (s *Server) unjudged(ctx context.Context, c caller, member string) error {
	any, err := s.authorizer.AnyGrant(ctx, c.user, member)
	switch {
	case err != nil:
		return err
	case !any:
		return memberForbidden(c.user, member)
	}
	return unavailable(fmt.Sprintf("no process that lives judges member %s", member))
}

// serveSharedQuery serves a query of a fleet that several processes share.
func (s *Server) serveSharedQuery(w http.ResponseWriter, r *http.Request, target route.Target, c caller) (served bool, err error) {
	name, q := s.findQuery(r, strings.TrimPrefix(target.Path, route.Query+"/"))
	if q == nil || name == "stream" { // whose parts are requests as any other
		return false, nil
	}
	if l := labelsOf(r.Context()); l != nil {
		l.setResource("query/" + name)
	}
	sharer, ok := q.(Sharer)
	if watched, can := q.(WatchSharer); can && isWatch(r) {
		return true, watched.WatchShared(w, r, c, sharedFleet{s, w, r, c, q})
	}
	if !ok || isWatch(r) {
		return true, fanout.NotImplemented("The query " + name)
	}
	return true, sharer.ServeShared(w, r, c, sharedFleet{s, w, r, c, q})
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
		here, err := s.answersFor(r.Context(), c, info)
		if err != nil || here {
			return err != nil, err
		}
		here, err = s.forwardMember(w, r, c, c.member)
		return !here, err
	case info.IsResourceRequest:
		s.labelResource(r, info)
		return true, s.shared.Serve(w, r, c.user)
	case s.isQuery(target):
		return s.serveSharedQuery(w, r, target, c)
	case !isHealthPath(target.Path):
		return true, s.serveUnion(w, r, target, c.user)
	}
	return false, nil
}

// answersFor reports whether this process answers for the member of a request, as no peer does.
func (s *Server) answersFor(ctx context.Context, c caller, info *apirequest.RequestInfo) (bool, error) {
	if s.judges(c.member) {
		return true, nil
	}
	a := s.options.Peers.Assignment()
	peer, self, known := a.Judge(c.member)
	switch {
	case peer != nil:
		return false, nil
	case self || !known || s.holds(c.member):
		return true, nil
	case a.Standby(c.member) != nil:
		return false, nil
	}
	if info.IsResourceRequest {
		if err := c.checkAccess(ctx, info); err != nil {
			return false, err
		}
	}
	return false, s.unjudged(ctx, c, c.member)
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
