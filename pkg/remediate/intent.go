package remediate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"federator.dev/federator/pkg/policy"
)

// Intent is a correction that a verdict asks for.
type Intent struct {
	Binding, Package     string
	Message              string // of the violation
	Source, Commit, Path string // where the policy came from
	Revision             policy.Revision
	Subject              policy.Subject
	Remedy               policy.Remedy

	// Of the target as it was judged: "" where it did not exist.
	APIVersion, UID, ResourceVersion string

	DryRun bool   // the write is tried, and never done
	Force  bool   // fields of other managers may be taken over
	ActAs  string // user on the member, "" for federator's own
}

// name is the name of the intent's Action. The same correction of the same version
// of the same target has the same name, in every process: it is never done twice.
func (i *Intent) name() string {
	h := sha256.New()
	for _, part := range []string{
		i.Binding, i.Remedy.Target.String(), i.UID, i.ResourceVersion, i.Remedy.Action, string(i.Remedy.Object), string(i.Remedy.Patch), i.Remedy.Propagation,
		fmt.Sprint(i.DryRun, i.Force), i.ActAs,
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	sum := hex.EncodeToString(h.Sum(nil))[:20]
	return dns(i.Binding) + "-" + sum
}

var notDNS = regexp.MustCompile(`[^a-z0-9]+`)

// dns makes a text the beginning of a name, at most 40 bytes.
func dns(s string) string {
	s = strings.Trim(notDNS.ReplaceAllString(strings.ToLower(s), "-"), "-")
	if len(s) > 40 {
		s = strings.Trim(s[:40], "-")
	}
	if s == "" {
		return "action"
	}
	return s
}

// fieldManager is who writes, in managedFields.
func (i *Intent) fieldManager() string {
	name := "federator/" + i.Binding
	if len(name) > 128 {
		name = name[:128]
	}
	return name
}

// ErrIntent is an intent that can never be carried out as it is.
var ErrIntent = errors.New("the remedy cannot be carried out")

// Content types of patches.
const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
	plainJSON  = "application/json"
)

// write is a request to a member.
type write struct {
	verb        string // POST, PATCH or DELETE
	contentType string
	body        []byte
	manager     bool // it takes a field manager
	force       bool
}

// compose makes the request of an intent. before is the target as it is, nil where
// there is none. Preconditions are part of the request: UID and resourceVersion, or
// that the target does not exist.
func (i *Intent) compose(before map[string]any, action string) (*write, error) {
	switch i.Remedy.Action {
	case "apply":
		return i.composeApply(before, action)
	case "patch":
		if before == nil {
			return nil, fmt.Errorf("%w: there is nothing to patch", ErrIntent)
		}
		return i.composePatch(before, action)
	case "delete":
		return i.composeDelete(before)
	}
	return nil, fmt.Errorf("%w: action %q", ErrIntent, i.Remedy.Action)
}

func (i *Intent) composeApply(before map[string]any, action string) (*write, error) {
	var object map[string]any
	if err := json.Unmarshal(i.Remedy.Object, &object); err != nil {
		return nil, fmt.Errorf("%w: object: %w", ErrIntent, err)
	}
	kind, group := i.Remedy.Target.Kind.Split()
	version, _ := object["apiVersion"].(string)
	if version == "" {
		version = i.APIVersion
	}
	if g, _, ok := strings.Cut(version, "/"); version == "" || ok != (group != "") || ok && g != group {
		return nil, fmt.Errorf("%w: object: apiVersion %q is none of %s", ErrIntent, version, i.Remedy.Target.Kind)
	}
	object["apiVersion"], object["kind"] = version, kind
	meta, err := mapOf(object, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := mapOf(meta, "annotations")
	if err != nil {
		return nil, err
	}
	if annotations[redactedAnnotation] != nil {
		return nil, fmt.Errorf("%w: object: its values are those of the index, which have been cut", ErrIntent)
	}
	meta["name"] = i.Remedy.Target.Name
	if i.Remedy.Target.Namespace != "" {
		meta["namespace"] = i.Remedy.Target.Namespace
	}
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
		delete(meta, field)
	}
	delete(object, "status")
	annotations[ActionAnnotation] = action
	w := &write{verb: "POST", contentType: plainJSON, manager: true}
	if before != nil {
		meta["uid"], meta["resourceVersion"] = i.UID, i.ResourceVersion
		w = &write{verb: "PATCH", contentType: applyPatch, manager: true, force: i.Force}
	}
	w.body, err = json.Marshal(object)
	return w, err
}

// mapOf returns an object's field that is an object, made if absent.
func mapOf(object map[string]any, field string) (map[string]any, error) {
	if object[field] == nil {
		made := map[string]any{}
		object[field] = made
		return made, nil
	}
	m, ok := object[field].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: %s is no object", ErrIntent, field)
	}
	return m, nil
}

func (i *Intent) composePatch(before map[string]any, action string) (*write, error) {
	if strings.HasPrefix(strings.TrimSpace(string(i.Remedy.Patch)), "[") {
		return i.composeJSONPatch(before, action)
	}
	var patch map[string]any
	if err := json.Unmarshal(i.Remedy.Patch, &patch); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", ErrIntent, err)
	}
	meta, err := mapOf(patch, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := mapOf(meta, "annotations")
	if err != nil {
		return nil, err
	}
	annotations[ActionAnnotation] = action
	meta["uid"], meta["resourceVersion"] = i.UID, i.ResourceVersion
	body, err := json.Marshal(patch)
	return &write{verb: "PATCH", contentType: mergePatch, body: body, manager: true}, err
}

// composeJSONPatch lets the API server find a moved object: replacing the
// resourceVersion by the one that was judged is its optimistic lock.
func (i *Intent) composeJSONPatch(before map[string]any, action string) (*write, error) {
	var ops []json.RawMessage
	if err := json.Unmarshal(i.Remedy.Patch, &ops); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", ErrIntent, err)
	}
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	all := []any{op{"replace", "/metadata/uid", i.UID}, op{"replace", "/metadata/resourceVersion", i.ResourceVersion}}
	for _, o := range ops {
		all = append(all, o)
	}
	meta, _ := before["metadata"].(map[string]any)
	if _, has := meta["annotations"].(map[string]any); !has {
		// Before the remedy's own operations, which may count on them as well.
		all = append([]any{op{"add", "/metadata/annotations", map[string]any{}}}, all...)
	}
	all = append(all, op{"add", "/metadata/annotations/" + strings.ReplaceAll(ActionAnnotation, "/", "~1"), action})
	body, err := json.Marshal(all)
	return &write{verb: "PATCH", contentType: jsonPatch, body: body, manager: true}, err
}

func (i *Intent) composeDelete(before map[string]any) (*write, error) {
	if before == nil {
		return nil, nil //nolint:nilnil // It is gone already.
	}
	options := map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]any{"uid": i.UID, "resourceVersion": i.ResourceVersion},
	}
	if p := i.Remedy.Propagation; p != "" {
		options["propagationPolicy"] = p
	}
	body, err := json.Marshal(options)
	return &write{verb: "DELETE", contentType: plainJSON, body: body}, err
}
