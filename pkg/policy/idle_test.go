package policy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

const wideView = `# METADATA
# title: What there is
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.wide

view.lines[input.ref.namespace] contains line if some line in input.object.spec.lines

violation contains {"msg": "never"} if input.object.spec.never
`

const wideReader = `# METADATA
# title: How much there is
# custom: {severity: low, subject: member}
package test.reader

violation contains {"msg": sprintf("%d", [count(data.fleet.views["test.wide"].lines.shop)])}
`

// grownBy returns an engine with another policy, and how many bytes the heap has grown by
// since it was without.
func grownBy(t *testing.T, w *world, text string) (*policy.Engine, int64) {
	t.Helper()
	set := load(t, wideView)
	e, _ := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
	base := heap()
	set = load(t, wideView, text)
	if _, err := e.Configure(t.Context(), set, bindingsOf(set)); err != nil {
		t.Fatal(err)
	}
	heap()                                // what pools keep goes with the second collection
	return e, int64(heap()) - int64(base) // far less than half of what fits
}

// TestEngine_HoldsNoDocumentsWhenIdle: what the last evaluations have read is released
// with them, or a quiet fleet would hold it until something changes.
func TestEngine_HoldsNoDocumentsWhenIdle(t *testing.T) {
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	const objects, lines = 1000, 20
	for i := range objects {
		var all []any
		for l := range lines {
			all = append(all, fmt.Sprintf("%d of %d %s", l, i, strings.Repeat("-", 40)))
		}
		mustDo(t, w, deployment("fleet/a", fmt.Sprint("d", i), map[string]any{"lines": all}))
	}
	e, grown := grownBy(t, w, wideReader)
	if got := e.State().Total("test.reader"); got != (policy.Counts{Known: 2, Violations: 2}) {
		t.Fatalf("%+v", got)
	}
	if grown > 4<<20 {
		t.Errorf("%d KiB are held of what the last evaluation has read", grown>>10)
	}
	runtime.KeepAlive(e)
}

const partsOfTexts = `# METADATA
# title: Parts of long texts
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.parts

view.parts[substring(input.object.spec.text, 0, 8)] contains true

violation contains {"msg": substring(input.object.spec.text, 0, 8)}
`

// TestEngine_CopiesSubstrings: builtins give parts that share the text
// they are of, which may be as long as an object.
func TestEngine_CopiesSubstrings(t *testing.T) {
	w, err := deployments(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		mustDo(t, w, deployment("fleet/a", fmt.Sprint("d", i), map[string]any{"text": fmt.Sprintf("%08d%s", i, strings.Repeat("-", 100_000))}))
	}
	e, grown := grownBy(t, w, partsOfTexts)
	if got := e.State().Total("test.parts").Violations; got < 200 {
		t.Fatalf("%d violations", got)
	}
	if grown > 4<<20 {
		t.Errorf("200 messages and keys of 8 bytes hold %d KiB", grown>>10)
	}
	runtime.KeepAlive(e)
}
