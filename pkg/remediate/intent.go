package remediate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
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

	Reason     string // why somebody asked for it, where it was no policy
	RollbackOf string // name of the Action that this one takes back

	Acknowledged *Acknowledgement // of the halt that it follows, nil for none
}

// actionName is the name of the intent's Action. The same correction of the same version
// of the same target has the same name, in every process: it is never done twice.
func (i *Intent) actionName() string { return i.nameForVersion(i.ResourceVersion) }

// triedName is the name of the Action that says that the intent cannot be written, or
// may not be. It is one for all versions of its target.
func (i *Intent) triedName() string { return i.nameForVersion("any") }

func (i *Intent) nameForVersion(version string) string {
	h := sha256.New()
	for _, part := range []string{
		i.Binding, i.Remedy.Target.String(), i.UID, version, i.Remedy.Action, string(i.Remedy.Object), string(i.Remedy.Patch), i.Remedy.Propagation,
		fmt.Sprint(i.DryRun, i.Force), i.ActAs, i.RollbackOf,
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	sum := hex.EncodeToString(h.Sum(nil))[:20]
	return dnsLabel(i.Binding) + "-" + sum
}

// repeatName is the name of the intent's nth Action, from 0: those before have ended, and
// the target is again as it was judged then. It was created and has been deleted, or
// its cluster was restored from a backup.
func (i *Intent) repeatName(n int) string {
	if n == 0 {
		return i.actionName()
	}
	return fmt.Sprintf("%s-%d", i.actionName(), n+1)
}

var notDNS = regexp.MustCompile(`[^a-z0-9]+`)

// dnsLabel makes a text the beginning of a name, at most 40 bytes.
func dnsLabel(s string) string {
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
		name = name[:115] + "-" + objects.Hash([]byte(name))[:12]
	}
	return name
}

// errInvalidIntent is an intent that can never be carried out as it is.
var errInvalidIntent = errors.New("the remedy cannot be carried out")

// Content types of patches.
const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
	plainJSON  = "application/json"
)

// memberRequest is a request to a member.
type memberRequest struct {
	verb         string // POST, PATCH or DELETE
	contentType  string
	body         []byte
	delete       *metav1.DeleteOptions // the body of a DELETE
	fieldManager bool                  // it takes a field manager
	force        bool
}

// decode reads JSON and keeps its numbers as they are written.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is something after it")
	}
	return nil
}

// buildRequest makes the request of an intent. before is the target as it is, nil where
// there is none. Preconditions are part of the request: UID and resourceVersion, or
// that the target does not exist.
func (i *Intent) buildRequest(before map[string]any, action string) (*memberRequest, error) {
	switch i.Remedy.Action {
	case "apply":
		return i.buildApply(before, action)
	case "patch":
		if before == nil {
			return nil, fmt.Errorf("%w: there is nothing to patch", errInvalidIntent)
		}
		return i.buildPatch(before, action)
	case "delete":
		return i.buildDelete(before)
	}
	return nil, fmt.Errorf("%w: action %q", errInvalidIntent, i.Remedy.Action)
}

// apiVersion is the apiVersion that an intent is written in, "" where that is not known.
func (i *Intent) apiVersion() string {
	var object struct {
		APIVersion string `json:"apiVersion"`
	}
	if i.Remedy.Action == "apply" && json.Unmarshal(i.Remedy.Object, &object) == nil && object.APIVersion != "" {
		return object.APIVersion
	}
	return i.APIVersion
}

func (i *Intent) buildApply(before map[string]any, action string) (*memberRequest, error) {
	var object map[string]any
	if err := decode(i.Remedy.Object, &object); err != nil {
		return nil, fmt.Errorf("%w: object: %w", errInvalidIntent, err)
	}
	if object == nil {
		return nil, fmt.Errorf("%w: there is no object", errInvalidIntent)
	}
	kind, group := i.Remedy.Target.Kind.Split()
	version := i.apiVersion()
	if g, _, ok := strings.Cut(version, "/"); version == "" || ok != (group != "") || ok && g != group {
		return nil, fmt.Errorf("%w: object: apiVersion %q is none of %s", errInvalidIntent, version, i.Remedy.Target.Kind)
	}
	object["apiVersion"], object["kind"] = version, kind
	meta, err := objectField(object, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := objectField(meta, "annotations")
	if err != nil {
		return nil, err
	}
	if annotations[redactedAnnotation] != nil {
		return nil, fmt.Errorf("%w: object: its values are those of the index, which have been cut", errInvalidIntent)
	}
	meta["name"] = i.Remedy.Target.Name
	if i.Remedy.Target.Namespace != "" {
		meta["namespace"] = i.Remedy.Target.Namespace
	}
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
		delete(meta, field)
	}
	delete(object, "status")
	annotations[actionAnnotation] = action
	w := &memberRequest{verb: "POST", contentType: plainJSON, fieldManager: true}
	if before != nil {
		meta["uid"], meta["resourceVersion"] = i.UID, i.ResourceVersion
		w = &memberRequest{verb: "PATCH", contentType: applyPatch, fieldManager: true, force: i.Force}
	}
	w.body, err = json.Marshal(object)
	return w, err
}

// objectField returns an object's field that is an object, made if absent.
func objectField(object map[string]any, field string) (map[string]any, error) {
	if object[field] == nil {
		made := map[string]any{}
		object[field] = made
		return made, nil
	}
	m, ok := object[field].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: %s is no object", errInvalidIntent, field)
	}
	return m, nil
}

func isJSONPatch(patch []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(patch), []byte("[")) }

func (i *Intent) buildPatch(before map[string]any, action string) (*memberRequest, error) {
	if isJSONPatch(i.Remedy.Patch) {
		return i.buildJSONPatch(before, action)
	}
	var patch map[string]any
	if err := decode(i.Remedy.Patch, &patch); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", errInvalidIntent, err)
	}
	meta, err := patchField(patch, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := patchField(meta, "annotations")
	if err != nil {
		return nil, err
	}
	annotations[actionAnnotation] = action
	meta["uid"], meta["resourceVersion"] = i.UID, i.ResourceVersion
	body, err := json.Marshal(patch)
	return &memberRequest{verb: "PATCH", contentType: mergePatch, body: body, fieldManager: true}, err
}

// patchField is mapOf of a merge patch, where null is a change.
func patchField(patch map[string]any, field string) (map[string]any, error) {
	if value, has := patch[field]; has && value == nil {
		return nil, fmt.Errorf("%w: patch: %s cannot be removed whole", errInvalidIntent, field)
	}
	return objectField(patch, field)
}

// jsonPatchOp is one of a JSON patch, RFC 6902.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value any    `json:"value"`
}

const annotationsPath = "/metadata/annotations"

// buildJSONPatch lets the API server find a moved object: setting the
// resourceVersion to the one that was judged is its optimistic lock. What is added
// comes after the remedy's own operations, which cannot undo it.
func (i *Intent) buildJSONPatch(before map[string]any, action string) (*memberRequest, error) {
	var ops []jsonPatchOp
	if err := decode(i.Remedy.Patch, &ops); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", errInvalidIntent, err)
	}
	meta, _ := before["metadata"].(map[string]any)
	_, has := meta["annotations"].(map[string]any)
	var all []any
	if !has { // the remedy's own operations may count on them
		all = append(all, jsonPatchOp{Op: "add", Path: annotationsPath, Value: map[string]any{}})
		has = true
	}
	var own []json.RawMessage // as they are: a value may be null, or absent
	if err := json.Unmarshal(i.Remedy.Patch, &own); err != nil {
		return nil, fmt.Errorf("%w: patch: %w", errInvalidIntent, err)
	}
	for n, op := range ops {
		switch all = append(all, own[n]); {
		case op.Op == "remove" && op.Path == annotationsPath, op.Op == "move" && op.From == annotationsPath:
			has = false
		case (op.Op == "add" || op.Op == "replace" || op.Op == "move" || op.Op == "copy") && op.Path == annotationsPath:
			has = true
		}
	}
	if !has {
		all = append(all, jsonPatchOp{Op: "add", Path: annotationsPath, Value: map[string]any{}})
	}
	all = append(all,
		jsonPatchOp{Op: "add", Path: annotationsPath + "/" + strings.ReplaceAll(actionAnnotation, "/", "~1"), Value: action},
		jsonPatchOp{Op: "add", Path: "/metadata/uid", Value: i.UID},
		jsonPatchOp{Op: "add", Path: "/metadata/resourceVersion", Value: i.ResourceVersion})
	body, err := json.Marshal(all)
	return &memberRequest{verb: "PATCH", contentType: jsonPatch, body: body, fieldManager: true}, err
}

func (i *Intent) buildDelete(before map[string]any) (*memberRequest, error) {
	if before == nil || objects.Terminating(before) {
		return nil, nil //nolint:nilnil // It is gone already, or about to be.
	}
	uid := types.UID(i.UID)
	options := &metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &i.ResourceVersion},
	}
	if p := metav1.DeletionPropagation(i.Remedy.Propagation); p != "" {
		options.PropagationPolicy = &p
	}
	return &memberRequest{verb: "DELETE", contentType: plainJSON, delete: options}, nil
}
