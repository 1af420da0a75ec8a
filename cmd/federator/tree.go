package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

const treeHelp = `Show what belongs to an object: its owners and what it owns, the Pods, EndpointSlices
and Nodes of a Service, the ConfigMaps, Secrets, volumes and ServiceAccounts that
a Pod uses, and the reverse.

  federator tree deployment web -n shop --member fleet/eu-1
  federator tree node worker-3 --member fleet/eu-1 --direction up --kinds pods`

// treeFlags say what of the tree is wanted.
type treeFlags struct {
	member, namespace string
	depth             int
	kinds             []string
	direction         string
}

func newTreeCommand() *cobra.Command {
	var flags askFlags
	var want treeFlags
	cmd := &cobra.Command{
		Use:   "tree RESOURCE NAME",
		Short: "Show what an object owns, uses and serves",
		Long:  treeHelp,
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.checkOutput(); err != nil {
				return err
			}
			return want.show(cmd, &flags, args[0], args[1])
		},
	}
	flags.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&want.member, "member", "", "`namespace/name` of the member that has the object")
	fs.StringVarP(&want.namespace, "namespace", "n", "", "its `namespace`")
	fs.IntVar(&want.depth, "depth", 3, "how far to go, at most 10")
	fs.StringSliceVar(&want.kinds, "kinds", nil, "only these `resources` (default all)")
	fs.StringVar(&want.direction, "direction", "both", "down to what it owns and uses, up to what owns and uses it, or both")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return flags.completeResources(cmd, args, typed)
		case 1:
			return want.completeNames(cmd, &flags, args[0])
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for name, complete := range map[string]cobra.CompletionFunc{
		"member": flags.completeMembers, "namespace": flags.completeNamespaces, "kinds": flags.completeKinds,
		"direction": cobra.FixedCompletions([]string{"down", "up", "both"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		cobra.CheckErr(cmd.RegisterFlagCompletionFunc(name, complete))
	}
	return cmd
}

// relatedAnswer is what /query/v1/related gives.
type relatedAnswer struct {
	Nodes     []relatedNode `json:"nodes"`
	Edges     []relatedEdge `json:"edges"`
	Truncated bool          `json:"truncated"`
	NotSynced []struct {
		Member, Kind, State string
	} `json:"notSynced"`
}

type relatedNode struct {
	Member, Kind, Namespace, Name string
}

type relatedEdge struct {
	From, To int
	Relation string
}

func (t *treeFlags) show(cmd *cobra.Command, flags *askFlags, resource, name string) error {
	a, err := flags.asker()
	if err != nil {
		return err
	}
	query := url.Values{"resource": {resource}, "name": {name}, "depth": {strconv.Itoa(t.depth)}, "direction": {t.direction}, "kinds": t.kinds}
	member := t.member
	if member == "" { // a context of one member says which
		member = strings.TrimPrefix(strings.TrimPrefix(a.target, "/members/"), "/fleet")
	}
	for parameter, value := range map[string]string{"member": member, "namespace": t.namespace} {
		if value != "" {
			query.Set(parameter, value)
		}
	}
	body, err := a.get(cmd.Context(), "/query/v1/related", query, "application/json")
	if err != nil {
		return err
	}
	if flags.output == "json" || flags.output == "yaml" {
		return flags.write(cmd.OutOrStdout(), body)
	}
	var answer relatedAnswer
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	answer.print(cmd.OutOrStdout())
	return nil
}

// print draws the tree that spans the graph: each object once, where it is
// nearest, with its relation to the one above it.
func (r *relatedAnswer) print(w io.Writer) {
	if len(r.Nodes) == 0 {
		return
	}
	type branch struct {
		node     int
		relation string
	}
	children := make([][]branch, len(r.Nodes))
	seen := make([]bool, len(r.Nodes))
	seen[0] = true
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, e := range r.Edges {
			next, relation := e.To, e.Relation
			if e.To == at {
				next, relation = e.From, e.Relation+" it"
			} else if e.From != at {
				continue
			}
			if !seen[next] {
				seen[next] = true
				children[at] = append(children[at], branch{next, relation})
				queue = append(queue, next)
			}
		}
		slices.SortStableFunc(children[at], func(x, y branch) int {
			return cmp.Or(cmp.Compare(x.relation, y.relation), cmp.Compare(r.Nodes[x.node].Kind, r.Nodes[y.node].Kind), cmp.Compare(r.Nodes[x.node].Name, r.Nodes[y.node].Name))
		})
	}
	dim, plain := "", ""
	if colored(w) {
		dim, plain = "\x1b[2m", "\x1b[0m"
	}
	root := r.Nodes[0]
	fmt.Fprintf(w, "%s %s%s%s\n", root.describe(), dim, printable(root.Member), plain)
	var draw func(at int, indent string)
	draw = func(at int, indent string) {
		for i, c := range children[at] {
			edge, below := "├─ ", "│  "
			if i == len(children[at])-1 {
				edge, below = "└─ ", "   "
			}
			fmt.Fprintf(w, "%s%s%s %s%s%s\n", indent, edge, r.Nodes[c.node].describe(), dim, printable(c.relation), plain)
			draw(c.node, indent+below)
		}
	}
	draw(0, "")
	if r.Truncated {
		fmt.Fprintln(w, "There may be more: a bound was met.")
	}
	for _, n := range r.NotSynced {
		fmt.Fprintf(w, "%s of %s is %s.\n", printable(n.Kind), printable(n.Member), printable(n.State))
	}
}

func (n relatedNode) describe() string {
	kind, _, _ := strings.Cut(n.Kind, ".")
	if n.Namespace == "" {
		return printable(kind + "/" + n.Name)
	}
	return printable(kind + "/" + n.Namespace + "/" + n.Name)
}

// completeNames completes the second argument with names of objects.
func (t *treeFlags) completeNames(cmd *cobra.Command, flags *askFlags, resource string) ([]string, cobra.ShellCompDirective) {
	return flags.completed(cmd, func(ctx context.Context, a *asker) ([]string, error) {
		path, err := a.path(ctx, resource, t.namespace)
		if err != nil {
			return nil, err
		}
		query := url.Values{}
		if t.member != "" {
			query.Set("labelSelector", "federator.dev/member="+strings.Replace(t.member, "/", ".", 1))
		}
		return a.names(ctx, path, query)
	})
}
