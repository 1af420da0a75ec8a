package tree

import (
	"strings"
	"testing"
)

func TestGraph_PrintsRelationsInWords(t *testing.T) {
	g := graph{
		Nodes: []node{
			{"fleet/eu-1", "Pod", "shop", "web-0"},
			{"fleet/eu-1", "Node", "", "n1"},
			{"fleet/eu-1", "ConfigMap", "shop", "conf"},
			{"fleet/eu-1", "Pod", "shop", "web-1"},
			{"fleet/eu-1", "Service", "shop", "web"},
		},
		Edges: []edge{{0, 1, "runsOn"}, {0, 2, "readsEnv"}, {3, 2, "readsEnv"}, {4, 0, "selects"}},
	}
	const want = `Pod/shop/web-0 fleet/eu-1
├─ ConfigMap/shop/conf uses in env
│  └─ Pod/shop/web-1 uses it in env
├─ Node/n1 runs on
└─ Service/shop/web selects it
`
	var out strings.Builder
	if g.print(&out); out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
