package remediate

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

// Annotations that federator reads and writes on members' objects.
const (
	// protectAnnotation, with any value, prevents federator from writing an object.
	protectAnnotation = api.ProtectKey
	// actionAnnotation names the Action that wrote an object last.
	actionAnnotation = api.ActionKey
	// redactedAnnotation marks objects in the index whose values are redacted.
	redactedAnnotation = api.RedactedKey
)

// protectedGroups are API groups that are never written: they decide who may do what, what
// members' API servers serve, and how the fleet is managed.
var protectedGroups = map[string]string{
	"rbac.authorization.k8s.io":    "RBAC",
	"admissionregistration.k8s.io": "admission webhooks and policies",
	"apiextensions.k8s.io":         "CustomResourceDefinitions",
	"apiregistration.k8s.io":       "APIServices",
	"authentication.k8s.io":        "reviews",
	"authorization.k8s.io":         "reviews",
	"certificates.k8s.io":          "certificates of the cluster",
	"federator.dev":                "federator's own objects",
}

// Protection is what is never written in addition to what is protected everywhere.
type Protection struct {
	// Kinds are patterns of kinds as kubectl writes them ("Secret", "*.cert-manager.io"), and
	// Namespaces of namespaces ("*-system"): * stands for any text.
	Kinds, Namespaces []string
}

// Validate returns what is wrong with the patterns.
func (p *Protection) Validate() error {
	for what, patterns := range map[string][]string{"kind": p.Kinds, "namespace": p.Namespaces} {
		for _, pattern := range patterns {
			if pattern == "" || strings.ContainsAny(pattern, "?[]\\/ ") {
				return fmt.Errorf("%q is not a pattern of a %s: only * is special", pattern, what)
			}
		}
	}
	return nil
}

// protected returns why a target is never written, or "".
func (p *Protection) protected(target policy.Ref, annotations map[string]string) string {
	if why := protectedEverywhere(target, annotations); why != "" {
		return why
	}
	for _, pattern := range p.Kinds {
		if matches(pattern, string(target.Kind)) {
			return "kind " + string(target.Kind) + " is protected by configuration"
		}
	}
	for _, pattern := range p.Namespaces {
		if target.Namespace != "" && matches(pattern, target.Namespace) {
			return "namespace " + target.Namespace + " is protected by configuration"
		}
	}
	return ""
}

// matches reports whether a text matches a pattern, in which * stands for any text.
func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text) // neither has a slash
	return ok || err != nil
}

// Protected returns why a target is never written, whatever its policy says, or "".
func (d *Dispatcher) Protected(target policy.Ref, annotations map[string]string) string {
	return d.opts.Protection.protected(target, annotations)
}

// protectedEverywhere returns why a target is never written by any federator, or "".
func protectedEverywhere(target policy.Ref, annotations map[string]string) string {
	kind, group := target.Kind.Split()
	if what, ok := protectedGroups[group]; ok {
		return what + " are protected"
	}
	_, marked := annotations[protectAnnotation]
	switch {
	case group == clusterv1.GroupVersion.Group || strings.HasSuffix(group, "."+clusterv1.GroupVersion.Group):
		return "Cluster API's objects are protected"
	case kind == "Namespace" && group == "":
		return "Namespaces are protected"
	case target.Namespace == "kube-system":
		return "kube-system is protected"
	case marked:
		return "it is annotated " + protectAnnotation
	}
	return ""
}

// optOuts returns the annotations by which a target may be protected from an intent.
func (i *Intent) optOuts(target map[string]any) map[string]string {
	if i.IgnoreOptOut {
		return nil
	}
	return objects.Annotations(target)
}

// Ownership says whether a GitOps controller manages a target. The zero value is of one that
// none manages.
type Ownership struct {
	// Owner names the controller's object, its repository and path, "" where there is none:
	// what is written would be reverted, and the change belongs there.
	Owner string
	// Unknown is why that is not known: nothing is written meanwhile.
	Unknown string
}

// owner returns who manages an intent's target, "" if nobody does or the policy writes all
// the same. Its error is ErrNotNow: it is not known.
func (o *Options) owner(i *Intent) (string, error) {
	if o.Owner == nil || i.OverrideGitOps {
		return "", nil
	}
	of := o.Owner(i.Remedy.Target)
	if of.Owner == "" && of.Unknown != "" {
		return "", fmt.Errorf("%w: %s", ErrNotNow, of.Unknown)
	}
	return of.Owner, nil
}

// unknownOwners returns of which members that have intents it is not known what GitOps
// controllers manage there, and why. It is read without the lock.
func (d *Dispatcher) unknownOwners(members map[string]error) map[string]string {
	if d.opts.Owner == nil {
		return nil
	}
	unknown := map[string]string{}
	for member := range members {
		if of := d.opts.Owner(policy.Ref{Member: member}); of.Unknown != "" {
			unknown[member] = of.Unknown
		}
	}
	return unknown
}

// OwnersChanged reconsiders the intents whose targets were managed, or are now. It is called
// after Options.Owner may return something else.
func (d *Dispatcher) OwnersChanged() {
	if d.opts.Owner == nil {
		return
	}
	var all []*desiredIntent
	d.mu.Lock()
	for _, s := range d.policies {
		for _, i := range s.intents {
			all = append(all, i)
		}
	}
	d.mu.Unlock()
	managed := make([]bool, len(all))
	for n, i := range all { // without the lock
		owner, err := d.opts.owner(i.Intent)
		managed[n] = owner != "" || err != nil
	}
	d.mu.Lock()
	now := d.opts.Clock()
	for n, i := range all {
		s := d.policies[i.Binding]
		if s == nil || s.intents[i.Remedy.Target] != i {
			continue // it is another by now
		}
		if i.managed == managed[n] {
			continue
		}
		i.managed = managed[n]
		if o := s.outcomes.of[i.Remedy.Target]; !i.managed && o != nil && o.Phase == v1alpha1.PhaseManaged {
			o.actionName = "" // as if it had not been tried
		}
		s.queue.Remove(i.Remedy.Target)
		s.ledger.ClearPending(s.name, i.Remedy.Target, now)
		s.updateDue(i.Remedy.Target, now)
	}
	d.mu.Unlock()
	d.trigger()
}

// Marks of GitOps controllers and Helm on what they apply. Anybody who may write an object may
// put them there, so they keep nothing from being written.
var (
	claimingLabels = map[string]string{
		"kustomize.toolkit.fluxcd.io/name": "Flux", "helm.toolkit.fluxcd.io/name": "Flux", "app.kubernetes.io/managed-by": "",
	}
	claimingAnnotations = map[string]string{"argocd.argoproj.io/tracking-id": "Argo CD", "meta.helm.sh/release-name": "Helm"}
	claimingManagers    = map[string]string{
		"argocd-controller": "Argo CD", "argocd-application-controller": "Argo CD", "kustomize-controller": "Flux", "helm-controller": "Flux", "helm": "Helm",
	}
)

// claimed returns which tool an object's marks say manages it, and the mark, "" for none.
func claimed(object map[string]any) (tool, mark string) {
	metadata, _ := object["metadata"].(map[string]any)
	for _, marks := range []struct {
		what, field string
		tools       map[string]string
	}{{"annotation", "annotations", claimingAnnotations}, {"label", "labels", claimingLabels}} {
		values, _ := metadata[marks.field].(map[string]any)
		for _, key := range sortedKeys(marks.tools) {
			value, _ := values[key].(string)
			if value == "" || value == "federator" {
				continue
			}
			return cmp.Or(marks.tools[key], "other"), fmt.Sprintf("%s %s: %s", marks.what, key, value)
		}
	}
	fields, _ := metadata["managedFields"].([]any)
	for _, f := range fields {
		entry, _ := f.(map[string]any)
		manager, _ := entry["manager"].(string)
		if tool := claimingManagers[manager]; tool != "" {
			return tool, "field manager " + manager
		}
	}
	return "", ""
}

// claimMessage is the message of an action that was written, or would be: whose marks its
// target has.
func (a *Action) claimMessage() string {
	if a.claimedBy == "" {
		return ""
	}
	return "Claimed: the target has marks of a tool that may revert this (" + a.claim + ")"
}
