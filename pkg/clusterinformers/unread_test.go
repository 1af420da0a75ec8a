package clusterinformers

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestInformer_NoNamespaceHidesThatAnotherIsUnread: one that may not be read does not.
func TestInformer_NoNamespaceHidesThatAnotherIsUnread(t *testing.T) {
	for _, other := range []*listWatch{
		{namespace: "b", state: aggregate.Stale, loaded: true},
		{namespace: "b", state: aggregate.Syncing},
	} {
		i := &informer{listWatches: []*listWatch{{namespace: "a", state: aggregate.Forbidden}, other}}
		if s := i.statusLocked(); s.Read() {
			t.Errorf("the scope counts as read (%+v), of which namespace b was never read by this process (%+v)", s, other.statusLocked())
		}
	}
}
