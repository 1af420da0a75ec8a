package tree

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"federator.dev/federator/internal/cli/console"
)

// graph is what /query/v1/related gives.
type graph struct {
	Nodes     []node `json:"nodes"`
	Edges     []edge `json:"edges"`
	Truncated bool   `json:"truncated"`
	NotSynced []struct {
		Member, Kind, State string
	} `json:"notSynced"`
}

type node struct {
	Member, Kind, Namespace, Name string
}

type edge struct {
	From, To int
	Relation string
}

// print draws the tree that spans the graph: each object once, where it is
// nearest, with its relation to the one above it.
func (r *graph) print(w io.Writer) {
	if len(r.Nodes) == 0 {
		return
	}
	type branch struct {
		node           int
		relation, text string
	}
	children := make([][]branch, len(r.Nodes))
	seen := make([]bool, len(r.Nodes))
	seen[0] = true
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, e := range r.Edges {
			next, reverse := e.To, e.To == at
			if reverse {
				next = e.From
			} else if e.From != at {
				continue
			}
			if !seen[next] {
				seen[next] = true
				children[at] = append(children[at], branch{next, e.Relation, relationText(e.Relation, reverse)})
				queue = append(queue, next)
			}
		}
		slices.SortStableFunc(children[at], func(x, y branch) int {
			return cmp.Or(cmp.Compare(x.relation, y.relation), cmp.Compare(x.text, y.text), cmp.Compare(r.Nodes[x.node].Kind, r.Nodes[y.node].Kind), cmp.Compare(r.Nodes[x.node].Name, r.Nodes[y.node].Name))
		})
	}
	dim, plain := "", ""
	if console.Colored(w) {
		dim, plain = "\x1b[2m", "\x1b[0m"
	}
	root := r.Nodes[0]
	fmt.Fprintf(w, "%s %s%s%s\n", root.describe(), dim, console.Printable(root.Member), plain)
	var draw func(at int, indent string)
	draw = func(at int, indent string) {
		for i, c := range children[at] {
			edge, below := "├─ ", "│  "
			if i == len(children[at])-1 {
				edge, below = "└─ ", "   "
			}
			fmt.Fprintf(w, "%s%s%s %s%s%s\n", indent, edge, r.Nodes[c.node].describe(), dim, console.Printable(c.text), plain)
			draw(c.node, indent+below)
		}
	}
	draw(0, "")
	if r.Truncated {
		fmt.Fprintln(w, "The tree is incomplete: a limit was reached.")
	}
	for _, n := range r.NotSynced {
		fmt.Fprintf(w, "%s of %s is %s.\n", console.Printable(n.Kind), console.Printable(n.Member), console.Printable(n.State))
	}
}

// relationTexts are relations in words, from an object to the one below it and to the one
// above it. Others are one word.
var relationTexts = map[string][2]string{
	"runsOn":    {"runs on", "runs on it"},
	"readsEnv":  {"uses in env", "uses it in env"},
	"pullsWith": {"pulls with", "pulls with it"},
	"runsAs":    {"runs as", "runs as it"},
}

func relationText(relation string, reverse bool) string {
	texts, ok := relationTexts[relation]
	if !ok {
		texts = [2]string{relation, relation + " it"}
	}
	if reverse {
		return texts[1]
	}
	return texts[0]
}

func (n node) describe() string {
	kind, _, _ := strings.Cut(n.Kind, ".")
	if n.Namespace == "" {
		return console.Printable(kind + "/" + n.Name)
	}
	return console.Printable(kind + "/" + n.Namespace + "/" + n.Name)
}
