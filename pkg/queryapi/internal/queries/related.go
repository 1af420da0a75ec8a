package queries

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Graph is the response of related.
type Graph struct {
	header
	// Nodes are sorted by distance, then in order of discovery. The first is the
	// requested object.
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
	// Truncated says that a limit was reached: there may be more.
	Truncated bool                  `json:"truncated,omitempty"`
	NotSynced []selection.NotSynced `json:"notSynced"`
}

// Node is one object.
type Node struct {
	Member     string         `json:"member"`
	APIVersion string         `json:"apiVersion"`
	Kind       aggregate.Kind `json:"kind"` // as "Deployment.apps"
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name"`
	UID        string         `json:"uid,omitempty"`
	Distance   int            `json:"distance"` // number of edges from the first
}

// Relation is the kind of an edge.
type Relation string

// The relations: what From is to To.
const (
	owns         Relation = "owns"      // an owner, the object that names it in ownerReferences
	selects      Relation = "selects"   // a Service, a Pod that its selector matches
	publishes    Relation = "publishes" // a Service, its EndpointSlice
	targets      Relation = "targets"   // an EndpointSlice, a Pod
	runsOn       Relation = "runsOn"    // a Pod, its Node
	mounts       Relation = "mounts"    // a Pod, a ConfigMap, Secret or PersistentVolumeClaim
	readsEnv     Relation = "readsEnv"  // a Pod, a ConfigMap or Secret of its environment
	pullsWith    Relation = "pullsWith" // a Pod, a Secret
	runsAs       Relation = "runsAs"    // a Pod, its ServiceAccount
	maxDepth              = 10
	defaultDepth          = 3
)

// Edge is a relation between two nodes, given by their indexes in Nodes.
type Edge struct {
	From     int      `json:"from"`
	To       int      `json:"to"`
	Relation Relation `json:"relation"`
}

// Related serves GET /query/v1/related: an object and those related to it in its member.
// Only objects of the given kinds are included and traversed; direction down traverses
// edges from From to To, up the other way, both in either direction.
func (s *Handler) Related(w http.ResponseWriter, r *http.Request, reader Caller) error {
	p, err := parse(r, "related")
	if err != nil {
		return err
	}
	x := &traversal{
		Handler: s, snapshot: s.options.Index.Snapshot(), reader: reader,
		grants: map[aggregate.Kind]*authz.Grants{}, index: map[aggregate.Ref]int{}, edges: map[Edge]bool{},
	}
	x.view = s.options.View(x.snapshot)
	if err := x.parse(p); err != nil {
		return err
	}
	root, err := x.root(r.Context(), p)
	if err != nil {
		return err
	}
	if err := x.explore(r.Context(), root); err != nil {
		return err
	}
	x.graph.header = newHeader("Related", x.snapshot)
	stale, err := x.freshness(r.Context())
	if err != nil {
		return err
	}
	x.graph.NotSynced, _ = selection.Listed(stale)
	link := selection.MembersLink(selection.MemberKey + "=" + strings.Replace(x.member, "/", ".", 1))
	return p.write(w, &x.graph, freshness{first: stale, link: link})
}

// parse parses depth, direction and kinds.
func (x *traversal) parse(p params) error {
	x.depth, x.up, x.down = defaultDepth, true, true
	if text := p.get("depth"); text != "" {
		depth, err := strconv.Atoi(text)
		if err != nil || depth < 1 || depth > maxDepth {
			return selection.NewBadParameter("depth", fmt.Sprintf("is %.64q, must be from 1 to %d", text, maxDepth))
		}
		x.depth = depth
	}
	switch direction := p.get("direction"); direction {
	case "", "both":
	case "up":
		x.down = false
	case "down":
		x.up = false
	default:
		return selection.NewBadParameter("direction", fmt.Sprintf("is %.64q, must be up, down or both", direction))
	}
	names := p.list("kinds")
	if len(names) > maxResources {
		return selection.NewBadParameter("kinds", fmt.Sprintf("has %d names, %d at most", len(names), maxResources))
	}
	for _, name := range names {
		resource, err := byName(x.view, "kinds", name)
		if err != nil {
			return err
		}
		x.kinds = append(x.kinds, resource.Kind)
	}
	return nil
}

// root returns the requested object. For one that may not be read the error is the same
// whether it exists or not.
func (x *traversal) root(ctx context.Context, p params) (aggregate.Object, error) {
	for _, name := range []string{"member", "resource", "name"} {
		if p.get(name) == "" {
			return aggregate.Object{}, selection.NewBadParameter(name, "is required")
		}
	}
	x.member = p.get("member")
	if namespace, name, ok := strings.Cut(x.member, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return aggregate.Object{}, selection.NewBadParameter("member", fmt.Sprintf("is %.128q, must be <namespace>/<name>", x.member))
	}
	resource, err := byName(x.view, "resource", p.get("resource"))
	if err != nil {
		return aggregate.Object{}, err
	}
	ref := aggregate.Ref{Member: x.member, Kind: resource.Kind, Namespace: p.get("namespace"), Name: p.get("name")}
	if resource.Namespaced != (ref.Namespace != "") {
		return aggregate.Object{}, selection.NewBadParameter("namespace", map[bool]string{
			true: "is required for a namespaced resource", false: "is not supported for a cluster-scoped resource",
		}[resource.Namespaced])
	}
	grants, err := x.reader.GrantsIn(ctx, selection.Get, resource.Kind, x.snapshot, []string{x.member})
	if err != nil {
		return aggregate.Object{}, err
	}
	if !grants.Member(ref.Member).Allows(ref.Namespace) {
		return aggregate.Object{}, forbidden(x.reader.User(), selection.Get, resource.GroupResource, ref.Name)
	}
	o, ok := x.snapshot.Get(ref)
	if !ok {
		return aggregate.Object{}, apierrors.NewNotFound(resource.GroupResource, ref.Name)
	}
	return o, nil
}

// traversal traverses the relations of one request, breadth first.
type traversal struct {
	*Handler
	snapshot *aggregate.Snapshot
	view     View
	reader   Caller
	member   string
	depth    int
	up, down bool
	kinds    []aggregate.Kind // empty: all

	grants  map[aggregate.Kind]*authz.Grants // to list
	objects []aggregate.Object               // of graph.Nodes
	index   map[aggregate.Ref]int            // in graph.Nodes
	edges   map[Edge]bool
	reads   int // number of objects read to find relations
	scratch selection.Scratch
	graph   Graph
}

// explore fills the graph. Objects at the maximum distance are not expanded, but edges among
// the others are complete.
func (x *traversal) explore(ctx context.Context, root aggregate.Object) error {
	x.graph.Edges = []Edge{}
	x.addNode(root, 0)
	for i := 0; i < len(x.objects) && x.graph.Nodes[i].Distance < x.depth; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.expand(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (x *traversal) addNode(o aggregate.Object, distance int) int {
	ref := o.Ref()
	x.index[ref] = len(x.objects)
	x.objects = append(x.objects, o)
	x.graph.Nodes = append(x.graph.Nodes, Node{
		Member: ref.Member, APIVersion: o.APIVersion(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
		UID: o.UID(), Distance: distance,
	})
	return len(x.objects) - 1
}

// grant returns what may be listed of a kind in the member.
func (x *traversal) grant(ctx context.Context, kind aggregate.Kind) (authz.MemberGrant, error) {
	grants, ok := x.grants[kind]
	if !ok {
		var err error
		if grants, err = x.reader.GrantsIn(ctx, selection.List, kind, x.snapshot, []string{x.member}); err != nil {
			return authz.MemberGrant{}, err
		}
		x.grants[kind] = grants
	}
	return grants.Member(x.member), nil
}

// included reports whether objects of a kind are included.
func (x *traversal) included(kind aggregate.Kind) bool {
	return len(x.kinds) == 0 || slices.Contains(x.kinds, kind)
}

// link adds an edge between the node at i and an object, which becomes a node if it may be
// read and the limit allows. outward: the object is To.
func (x *traversal) link(ctx context.Context, i int, o aggregate.Object, relation Relation, outward bool) error {
	j, ok := x.index[o.Ref()]
	if !ok {
		if !x.included(o.Ref().Kind) {
			return nil
		}
		reach, err := x.grant(ctx, o.Ref().Kind)
		if err != nil || !reach.Allows(o.Namespace()) {
			return err
		}
		if len(x.objects) >= x.options.MaxNodes {
			x.graph.Truncated = true
			return nil
		}
		j = x.addNode(o, x.graph.Nodes[i].Distance+1)
	}
	e := Edge{From: i, To: j, Relation: relation}
	if !outward {
		e.From, e.To = j, i
	}
	switch {
	case x.edges[e]:
	case len(x.edges) >= edgesPerNode*x.options.MaxNodes:
		x.graph.Truncated = true
	default:
		x.edges[e] = true
		x.graph.Edges = append(x.graph.Edges, e)
	}
	return nil
}

// edgesPerNode bounds the edges of a graph, as a multiple of MaxNodes.
const edgesPerNode = 10

// freshness returns the included kinds that the caller may list and that are not fresh in
// the member.
func (x *traversal) freshness(ctx context.Context) ([]selection.NotSynced, error) {
	out := []selection.NotSynced{}
	for scope := range x.snapshot.Scopes(x.member) {
		if scope.Status.State.Complete() || !x.included(scope.Kind) && scope.Kind != x.graph.Nodes[0].Kind {
			continue
		}
		reach, err := x.grant(ctx, scope.Kind)
		if err != nil {
			return nil, err
		}
		if !reach.Empty() {
			out = append(out, selection.Freshness(x.snapshot, scope.Kind, []string{x.member}, x.options.LastContact, x.options.Now())...)
		}
	}
	return out, nil
}

func (g *Graph) table() *metav1.Table {
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: g.Revision}}
	t.ColumnDefinitions = columns("Cluster", "Kind", "Namespace", "Name", "#Distance", "Relations")
	relations := make([][]string, len(g.Nodes))
	for _, e := range g.Edges {
		relations[e.To] = append(relations[e.To], fmt.Sprintf("%s %s %s", g.Nodes[e.From].Kind, g.Nodes[e.From].Name, e.Relation))
	}
	for i, n := range g.Nodes {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{n.Member, string(n.Kind), n.Namespace, n.Name, n.Distance, strings.Join(relations[i], ",")}})
	}
	return t
}
