package resources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/columns"
	"federator.dev/federator/pkg/queryapi/internal/flat"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Caller is the caller of a request.
type Caller interface {
	User() user.Info
	// Grants returns what the caller may read now of a kind in a snapshot.
	Grants(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot) (*authz.Grants, error)
}

// Options configure a Handler. Index, View, Tokens and Pins are required.
type Options struct {
	Index       *aggregate.Index
	View        func(s *aggregate.Snapshot, target route.Target) *catalog.View
	LastContact func(member string, kind aggregate.Kind) time.Time
	Tokens      *selection.TokenCodec
	Pins        *selection.Pins
	Now         func() time.Time // nil means time.Now
	Grants      GrantMemory      // nil: no watch of a caller with limited grants is resumed over a restart

	// ValuesRedacted says that the index has no values of Secrets and ConfigMaps.
	ValuesRedacted bool

	// MaxProtobufBytes bounds a list in protobuf, which is prefixed with its length and so
	// encoded before any of it is sent; 0 means 64 MiB.
	MaxProtobufBytes int

	// Left reports whether a member that is not in the index any more has left the fleet: else
	// another process has it now. Nil: no other process shares the fleet.
	Left func(member string) bool

	// WriteTimeout bounds each write to a client of a watch; 0 means 30 s.
	// BookmarkInterval is the time between bookmarks; 0 means 1 minute.
	WriteTimeout, BookmarkInterval time.Duration
}

// Handler serves requests for resources.
type Handler struct {
	options        Options
	events         *eventCache
	protobufBudget *byteBudget // for lists in protobuf that are held
	broadcast      broadcaster
	buffers        bufferPool
	memberLabels   memberLabels
	roles          *memberRoles // nil: no other process shares the fleet
	histories      *grantHistories
}

// New returns a Handler.
func New(o Options) (*Handler, error) {
	if o.Index == nil || o.View == nil || o.Tokens == nil || o.Pins == nil {
		return nil, errors.New("resources: Index, View, Tokens and Pins are required")
	}
	if o.WriteTimeout < 0 || o.BookmarkInterval < 0 || o.MaxProtobufBytes < 0 {
		return nil, errors.New("resources: timeouts and sizes must not be negative")
	}
	if o.MaxProtobufBytes == 0 {
		o.MaxProtobufBytes = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.BookmarkInterval == 0 {
		o.BookmarkInterval = time.Minute
	}
	h := &Handler{options: o, events: newEventCache(), protobufBudget: newByteBudget(o.MaxProtobufBytes), histories: newGrantHistories(o.Index, o.Grants, maxHistories)}
	if o.Left != nil {
		h.roles = newMemberRoles(o.Index, o.Left)
	}
	return h, nil
}

// request is a parsed request.
type request struct {
	*Handler
	w        http.ResponseWriter
	r        *http.Request
	target   route.Target
	info     *apirequest.RequestInfo
	location route.Location // that its names refer to
	// namespace is that of the objects, "" for all and for cluster-scoped ones.
	namespace              string
	caller                 Caller
	params                 *selection.Params
	format                 format
	wantsRows              bool    // rows are the format that the client likes best
	fallback               *format // where format is protobuf: the other format that the client accepts, nil if none
	selector               *selection.Selector
	selectsByClusterLabels bool // labels of Clusters select
	resource               *catalog.Resource
	rowColumns             *columns.Set // of rows; nil for other formats
	keys                   *flat.Keys   // flat keys of the objects; nil: their own
	snapshot               *aggregate.Snapshot
	after                  aggregate.Position // of a list that is continued
	grants                 *authz.Grants
	history                *grantHistory // of the grants; nil: of a get
	version                int64         // of the history, with these grants

	ask      *part.Ask // nil: the response is whole
	judged   []string  // the members that the part is of
	refused  error     // why the part is empty
	warnings []string  // of the part
}

// Serve serves a request whose target and request info are in its context. An error is
// returned before anything is written.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller Caller) error {
	q := &request{Handler: h, w: w, r: r, caller: caller}
	if err := q.parse(); err != nil {
		if !q.refuses(err) {
			return err
		}
		q.refused = err
		if q.info.Verb != selection.Watch || !apierrors.IsForbidden(err) {
			return q.servePartRefused()
		}
	}
	switch q.info.Verb {
	case selection.Watch:
		return q.watch()
	case selection.List:
		return q.list()
	}
	return q.get()
}

// parse parses the request, and fetches the grants of its caller.
func (q *request) parse() error {
	var ok bool
	if q.info, ok = apirequest.RequestInfoFrom(q.r.Context()); !ok {
		panic("resources: a request without request info")
	}
	q.target, _ = route.TargetFrom(q.r.Context())
	q.location = route.LocationOf(q.target, q.info)
	q.ask = part.From(q.r.Context())
	formats, err := negotiateFor(q.r, q.info, q.location.Member)
	if err != nil {
		return err
	}
	q.wantsRows = formats[0].shape == asRows
	verb := q.info.Verb
	if q.params, err = selection.Parse(q.r.URL.Query(), verb); err != nil {
		return err
	}
	if q.snapshot, err = q.snapshotAt(); err != nil {
		return err
	}
	q.setJudged()
	if q.resource, err = q.options.View(q.snapshot, q.target).Resource(q.info.APIGroup, q.info.APIVersion, q.info.Resource); err != nil {
		return err
	}
	if q.ask != nil && q.ask.Plain {
		q.resource = q.resource.Plain()
	}
	if err := q.chooseFormat(formats); err != nil {
		return err
	}
	if err := q.chooseColumns(); err != nil {
		return err
	}
	within := q.info.Namespace
	q.namespace = q.location.Namespace
	if q.resource.Kind == "Namespace" {
		within, q.namespace = "", "" // request info of a Namespace has itself as namespace
	}
	if within != "" != q.resource.Namespaced && (within != "" || verb == selection.Get) && q.resource.ScopeDiffers == nil {
		return q.notFound()
	}
	if err := q.compile(); err != nil {
		return err
	}
	if q.selectsByClusterLabels = selectsByClusterLabels(q.params.LabelSelector); q.selectsByClusterLabels {
		q.memberLabels.record(q.snapshot)
	}
	q.grants, err = q.caller.Grants(q.r.Context(), verb, q.resource.Kind, q.snapshot)
	if err != nil {
		return err
	}
	key := q.historyKey(verb)
	if verb != selection.Get && (q.ask != nil || !q.grants.Empty() || q.histories.get(key) != nil) {
		q.history, q.version = q.histories.record(key, q.grants)
	}
	if q.grants.Empty() {
		return q.forbidden()
	}
	return q.checkWhole(q.grants)
}

// compile compiles the selectors, which apply to objects as they are shown.
func (q *request) compile() (err error) {
	if !q.target.Flat() {
		q.selector, err = selection.Compile(q.params.LabelSelector, q.params.FieldSelector, q.resource.Kind)
		return err
	}
	view := q.options.View(q.snapshot, q.target)
	q.keys = flat.NewKeys(q.resource.Kind, q.resource.Namespaced, func(kind aggregate.Kind) (namespaced, known bool) {
		r, known := view.Kind(kind)
		return known && r.Namespaced, known
	})
	q.selector, err = selection.CompileFlat(q.params.LabelSelector, q.params.FieldSelector, q.resource.Kind, q.keys)
	return err
}

// Check returns why a request is refused whatever it is of: what it accepts, or a subresource.
func Check(r *http.Request, info *apirequest.RequestInfo, member string) error {
	_, err := negotiateFor(r, info, member)
	return err
}

// negotiateFor returns the acceptable formats. Logs, exec and other subresources are an error.
func negotiateFor(r *http.Request, info *apirequest.RequestInfo, member string) ([]format, error) {
	if info.Subresource == "" {
		return negotiate(r)
	}
	err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource + "/" + info.Subresource}, info.Verb)
	err.ErrStatus.Message += ": the query API serves no subresources; " + route.MemberHint(member)
	return nil, err
}

func (q *request) notFound() *apierrors.StatusError {
	return apierrors.NewNotFound(q.resource.Resource.GroupResource(), q.info.Name)
}

// forbidden is the 403 of an API server with RBAC.
func (q *request) forbidden() error {
	return Forbidden(q.caller.User(), q.target, q.info, q.resource.Resource.GroupResource())
}

// Forbidden is the 403 of an API server with RBAC, with names as the client wrote them.
func Forbidden(u user.Info, target route.Target, info *apirequest.RequestInfo, gr schema.GroupResource) error {
	where := "in any member"
	switch {
	case target.Member != "":
		where = fmt.Sprintf("in member %q", target.Member)
	case target.Flat() && info.Namespace != "":
		where = fmt.Sprintf("in the namespace %q", info.Namespace)
	case target.Flat():
		where = "at the cluster scope"
	}
	return apierrors.NewForbidden(gr, info.Name,
		fmt.Errorf("User %q cannot %s resource %q in API group %q %s", u.GetName(), info.Verb, gr.String(), authz.Group, where)) //nolint:staticcheck // an API server's words
}

// warnOfRedaction warns clients that would take empty values for real ones, such as Helm,
// which silently finds no releases.
func (q *request) warnOfRedaction() {
	kind := q.resource.Kind
	if !q.options.ValuesRedacted || q.format.shape != fullObject || kind != "Secret" && kind != "ConfigMap" {
		return
	}
	q.warn(fmt.Sprintf("values of %ss are redacted, including Helm releases, unless keepSecretValues is set", kind))
}

// members returns the members that the request is about; nil is all.
func (q *request) members() []string {
	switch {
	case q.location.NoMember:
		return []string{}
	case q.location.Member != "":
		return []string{q.location.Member}
	}
	return q.judged
}

// targets reports whether the request is about a member, apart from its selectors.
func (q *request) targets(member string) bool {
	if q.ask != nil {
		if _, ok := slices.BinarySearch(q.judged, member); !ok {
			return false
		}
	}
	return !q.location.NoMember && (q.location.Member == "" || q.location.Member == member)
}

// FlatNamesHint explains names below /flat.
const FlatNamesHint = "names are <cluster namespace>.<cluster name>.<name>, with _ for dots of a cluster's name"

// warnOfUnknownNamespace warns of namespaces that refer to no member, where the result would
// look like an empty fleet.
func (q *request) warnOfUnknownNamespace() {
	if !q.target.Flat() || q.info.Namespace == "" {
		return
	}
	if q.location.NoMember {
		q.warn(fmt.Sprintf("no namespace is called %q here: %s", q.info.Namespace, FlatNamesHint))
	} else if _, ok := q.snapshot.Member(q.location.Member); !ok {
		q.warn(fmt.Sprintf("namespace %q refers to member %s, which does not exist", q.info.Namespace, q.location.Member))
	}
}

// listing returns the selection of the request in its snapshot.
func (q *request) listing() selection.Listing {
	return selection.Listing{
		Snapshot: q.snapshot, Selector: q.selector, Grants: q.grants,
		Members: q.members(), Namespace: q.namespace, After: q.after,
	}
}

// revisionTimeout is how long a request waits for a future revision, as in kube-apiserver.
const revisionTimeout = 3 * time.Second

// snapshotAt returns the snapshot to serve the request from.
func (q *request) snapshotAt() (*aggregate.Snapshot, error) {
	s := q.options.Index.Snapshot()
	wanted := q.params.Revision
	switch {
	case q.ask != nil && (q.ask.At != 0 || q.ask.After != aggregate.Position{}):
		return q.continuePart(s)
	case q.params.Continue != "":
		return q.continueFrom(s)
	case wanted == 0:
		return s, nil
	case !q.options.Index.Owns(wanted):
		return nil, Expired(wanted)
	case q.params.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		if wanted == s.Revision() {
			return s, nil
		}
		if pinned, ok := q.options.Pins.Snapshot(wanted, s, q.options.Now()); ok {
			return pinned, nil
		}
		if wanted > s.Revision() {
			return q.waitForRevision(wanted)
		}
		return nil, Expired(wanted)
	case q.params.Watch && (q.params.SendInitialEvents == nil || !*q.params.SendInitialEvents) && wanted <= s.Revision():
		return s, nil
	}
	return q.waitForRevision(wanted)
}

func (q *request) waitForRevision(wanted aggregate.Revision) (*aggregate.Snapshot, error) {
	ctx, cancel := context.WithTimeout(q.r.Context(), revisionTimeout)
	defer cancel()
	for {
		s := q.options.Index.Snapshot()
		if s.Revision() >= wanted {
			return s, nil
		}
		select {
		case <-q.options.Index.Newer(s):
		case <-ctx.Done():
			return nil, tooLargeError(wanted, s.Revision())
		}
	}
}

// Expired is the 410 after which clients list again.
func Expired(r aggregate.Revision) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is too old, or was issued by another replica or before a restart", r))
}

func expiredStatus(r aggregate.Revision) metav1.Status {
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is too old: the change log has been truncated", r)).Status()
}

// tooLargeError is the error by which client-go recognises a server that lags
// (storage.NewTooLargeResourceVersionError).
func tooLargeError(want, have aggregate.Revision) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// freshness returns the members that are not synced, and sets the header; with
// require=synced it is an error.
func (q *request) freshness(members []string) ([]selection.NotSynced, error) {
	out := selection.Freshness(q.snapshot, q.resource.Kind, members, q.options.LastContact, q.options.Now())
	if len(out) == 0 {
		return nil, nil
	}
	if q.ask != nil {
		return out, nil // who has all parts says it
	}
	return out, SetFreshness(q.w.Header(), q.params, q.resource.Resource.GroupResource().String(), out)
}

// SetFreshness sets the header of what is not fresh; with require=synced it is an error.
func SetFreshness(h http.Header, p *selection.Params, resource string, out []selection.NotSynced) error {
	selection.SetHeaders(h, out, 0, selection.MembersLink(p.LabelSelector, resource))
	if p.RequireSynced {
		return notSyncedError(out)
	}
	return nil
}

// maxCauses bounds the members that an error names as its causes.
const maxCauses = 20

func notSyncedError(out []selection.NotSynced) error {
	err := apierrors.NewServiceUnavailable("not synced: " + selection.Header(out, 0))
	err.ErrStatus.Details = &metav1.StatusDetails{}
	for _, n := range out[:min(len(out), maxCauses)] {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: "NotSynced", Field: n.Member, Message: fmt.Sprintf("%s is %s %s", n.Kind, n.State, n.Reason),
		})
	}
	return err
}

// addedMetadataOf returns the metadata that is added to an object.
func addedMetadataOf(o aggregate.Object) addedMetadata {
	return addedMetadata{member: o.Member(), version: o.ResourceVersion(), revision: o.Revision()}
}

func revisionString(r aggregate.Revision) string { return strconv.FormatUint(uint64(r), 10) }
