package queries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// apiVersion is that of every result in JSON.
const apiVersion = "query.federator.dev/v1"

// Caller is the caller of a request. Errors are *apierrors.StatusError or the context's.
type Caller interface {
	User() user.Info
	// Grants returns what the caller may read of a kind in a snapshot with a verb.
	Grants(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot) (*authz.Grants, error)
	// GrantsIn is Grants in some members alone, by name.
	GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, members []string) (*authz.Grants, error)
	// Visible returns the members in which the caller may read anything at all, sorted,
	// and when that expires.
	Visible(ctx context.Context, at *aggregate.Snapshot) (members []string, until time.Time, err error)
	// VisibleIn is Visible among some members alone, by name, sorted.
	VisibleIn(ctx context.Context, members []string) (visible []string, until time.Time, err error)
}

// Resource is a resource whose kind the index holds.
type Resource struct {
	schema.GroupResource
	Kind       aggregate.Kind
	Namespaced bool
}

// View finds resources.
type View interface {
	// ByName returns the resource of a name such as "pods", "deployments.apps"
	// or "po".
	ByName(name string) (Resource, bool)
}

// Options configure a Handler. Index, View, Tokens and Pins are required.
type Options struct {
	Index  *aggregate.Index
	Tokens *selection.TokenCodec // of pages
	Pins   *selection.Pins
	// View returns the resources as of a snapshot.
	View func(*aggregate.Snapshot) View
	// LastContact returns when a member last sent anything about a kind; the zero time
	// when it never did. Nil: never.
	LastContact func(member string, kind aggregate.Kind) time.Time
	// Proved returns when what is held of a kind of a member was last known to be what the member
	// has; the zero time when it never was. Nil: never.
	Proved func(member string, kind aggregate.Kind) time.Time
	// Held returns why nothing is written to a member, "" when it may be. Nil: every member is.
	Held func(member string) string
	// WritesWith names the credentials that a member is written with, "" where nobody knows.
	// Nil: of no member.
	WritesWith func(member string) string
	// Health returns how federator gets along with a member, nil where nobody knows. Nil: nothing
	// is said of it.
	Health func(member string) *MemberHealth
	// Via returns the installations of federator between this one and a member, the nearest first. Nil: there
	// are none.
	Via func(member string) []string
	// Installation is the ID of this one; "" where it has none.
	Installation string
	// Known reports whether the index has all members. Nil: it does.
	Known func() bool
	Now   func() time.Time // nil: time.Now

	MaxGroups int // that a count may have; 0 means 10,000
	MaxNodes  int // that related may find; 0 means 1,000
	// MaxReads bounds the objects that related may read to find relations; 0 means 50,000.
	MaxReads int
}

// Handler serves the queries.
type Handler struct{ options Options }

// New returns a Handler.
func New(o Options) (*Handler, error) {
	if o.Index == nil || o.View == nil || o.Tokens == nil || o.Pins == nil {
		return nil, errors.New("queries: Index, View, Tokens and Pins are required")
	}
	if o.MaxGroups < 0 || o.MaxNodes < 0 || o.MaxReads < 0 {
		return nil, errors.New("queries: limits must not be negative")
	}
	for bound, standard := range map[*int]int{&o.MaxGroups: 10_000, &o.MaxNodes: 1_000, &o.MaxReads: 50_000} {
		if *bound == 0 {
			*bound = standard
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Proved == nil {
		o.Proved = func(string, aggregate.Kind) time.Time { return time.Time{} }
	}
	if o.Held == nil {
		o.Held = func(string) string { return "" }
	}
	if o.WritesWith == nil {
		o.WritesWith = func(string) string { return "" }
	}
	if o.Known == nil {
		o.Known = func() bool { return true }
	}
	if o.Via == nil {
		o.Via = func(string) []string { return nil }
	}
	return &Handler{o}, nil
}

// header is the start of every result.
type header struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Revision is that of the snapshot, as resourceVersions are.
	Revision string `json:"revision"`
}

func newHeader(kind string, s *aggregate.Snapshot) header {
	return header{Kind: kind, APIVersion: apiVersion, Revision: strconv.FormatUint(uint64(s.Revision()), 10)}
}

// result can be written as JSON and as a Table.
type result interface {
	table() *metav1.Table
}

// params are the parsed parameters of a query.
type params struct {
	values        url.Values
	pretty        bool
	requireSynced bool      // fail unless all members are Synced
	asTable       bool      // the client prefers a Table
	ask           *part.Ask // nil: the result is whole
}

// parse refuses parameters that are not in the query's description, repeated ones that
// may not be, and forms that are not served.
func parse(r *http.Request, query string) (params, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return params{}, apierrors.NewBadRequest("cannot parse the query: " + err.Error())
	}
	common := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch known, ok := operations[query].parameter(name); {
		case !ok:
			return params{}, selection.NewBadParameter(name, "is not supported")
		case isCommon(name):
			common[name] = values[name]
		case len(values[name]) > 1 && !known.Repeated:
			return params{}, selection.NewBadParameter(name, fmt.Sprintf("is given %d times", len(values[name])))
		}
	}
	p, err := selection.Parse(common, selection.Get)
	if err != nil {
		return params{}, err
	}
	asTable, err := wantsTable(r)
	return params{values: values, pretty: p.Pretty, requireSynced: p.RequireSynced, asTable: asTable, ask: part.From(r.Context())}, err
}

func (p params) get(name string) string { return p.values.Get(name) }

// flag returns the value of a boolean parameter.
func (p params) flag(name string) (bool, error) {
	if !p.values.Has(name) {
		return false, nil
	}
	on, err := selection.ParseBool(p.get(name))
	if err != nil {
		return false, selection.NewBadParameter(name, fmt.Sprintf("is %.64q, %v", p.get(name), err))
	}
	return on, nil
}

// list returns the values of a parameter that may be given several times, or
// with commas between them.
func (p params) list(name string) []string {
	var out []string
	for _, v := range p.values[name] {
		for one := range strings.SplitSeq(v, ",") {
			if one != "" {
				out = append(out, one)
			}
		}
	}
	return out
}

// wantsTable reports whether the client prefers a Table. An error is 406.
func wantsTable(r *http.Request) (bool, error) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return false, nil
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		if clause.Q == 0 {
			continue
		}
		if clause.Type != "*" && clause.Type != "application" || clause.SubType != "*" && clause.SubType != "json" {
			continue
		}
		switch as := clause.Params["as"]; {
		case as == "":
			return false, nil
		case as == "Table" && clause.Params["g"] == metav1.GroupName && clause.Params["v"] == "v1":
			return true, nil
		}
	}
	return false, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only application/json is served, and that with as=Table;g=meta.k8s.io;v=v1",
	}}
}

// freshness is what is not fresh in a result.
type freshness struct {
	first []selection.NotSynced
	more  int    // others
	link  string // to all, as selection.SetHeaders has it; "": none
	// Of a part: what is asked for, and see partResult.
	asked  []asked
	unsure []string
}

// write sends a result, unless it must be fresh and is not.
func (p params) write(w http.ResponseWriter, a result, stale freshness) error {
	if p.ask != nil {
		return writePart(w, a, stale)
	}
	selection.SetHeaders(w.Header(), stale.first, stale.more, stale.link)
	if p.requireSynced && len(stale.first) > 0 {
		return notSyncedError(stale)
	}
	var v any = a
	contentType := "application/json"
	if p.asTable {
		table := a.table()
		table.TypeMeta = metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}
		if table.Rows == nil {
			table.Rows = []metav1.TableRow{} // not null
		}
		v = table
		contentType += ";as=Table;g=meta.k8s.io;v=v1"
	}
	var body []byte
	var err error
	if p.pretty {
		body, err = json.MarshalIndent(v, "", "  ")
	} else {
		body, err = json.Marshal(v)
	}
	if err != nil {
		return fmt.Errorf("queries: encode: %w", err)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	_, _ = w.Write(append(body, '\n')) // the client may be gone
	return nil
}

func notSyncedError(stale freshness) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "not synced: " + selection.Header(stale.first, stale.more),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

// forbidden is the 403 of an API server.
func forbidden(u user.Info, verb string, resource schema.GroupResource, name string) error {
	return apierrors.NewForbidden(resource, name, fmt.Errorf("User %q cannot %s resource %q in API group %q in any member, or in the requested one",
		u.GetName(), verb, resource.Resource, resource.Group))
}

// byName resolves the name of a resource. Its error is 404.
func byName(v View, parameter, name string) (Resource, error) {
	resource, ok := v.ByName(name)
	if !ok {
		return Resource{}, unknownResource(parameter, name)
	}
	return resource, nil
}

func unknownResource(parameter, name string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("parameter %q is %.64q: unknown resource", parameter, name),
	}}
}

// columns makes the columns of a Table from names; "#" before one marks a number.
func columns(names ...string) []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, len(names))
	for i, name := range names {
		out[i] = metav1.TableColumnDefinition{Name: name, Type: "string"}
		if number, ok := strings.CutPrefix(name, "#"); ok {
			out[i].Name, out[i].Type = number, "integer"
		}
	}
	return out
}
