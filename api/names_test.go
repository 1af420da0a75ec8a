package api_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
)

// qualifiedName is what Kubernetes accepts after the slash of a label or
// annotation key.
var qualifiedName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

func TestKeys_AreValidAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{
		api.MemberKey, api.ResourceVersionKey, api.OriginalNamespaceKey, api.OriginalNameKey, api.RedactedKey, api.ActionKey, api.ProtectKey, api.FreezeKey, api.StopKey,
		api.AcknowledgeKey, api.ChangedByKey, api.SyncKey, api.PruneKey, api.PolicyKey, api.SourceKey,
		api.RollbackKey, api.RollbackReasonKey, api.RollbackOutcomeKey,
	} {
		group, name, ok := strings.Cut(key, "/")
		if !ok || group != api.GroupName || !qualifiedName.MatchString(name) {
			t.Errorf("%q is not a key of group %s", key, api.GroupName)
		}
		if seen[key] {
			t.Errorf("%q is there twice", key)
		}
		seen[key] = true
	}
}

func Example() {
	fmt.Println(v1alpha1.GroupVersion)
	fmt.Println(api.RedactedKey)
	// Output:
	// federator.dev/v1alpha1
	// federator.dev/redacted
}
