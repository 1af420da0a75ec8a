package actions

import (
	"encoding/json"

	"federator.dev/federator/api/v1alpha1"
)

// notRestored returns what a rollback of an Action does not restore, although it can be
// rolled back.
func notRestored(a *v1alpha1.Action) []string {
	if a.Inverse == nil || a.Inverse.Irreversible != "" || a.Status.Phase != v1alpha1.PhaseSucceeded && a.Status.Phase != v1alpha1.PhaseWriting {
		return nil
	}
	var out []string
	switch a.Inverse.Verb {
	case v1alpha1.Apply: // it was deleted
		out = deletionNotes(a)
	case v1alpha1.Delete: // it was made
		out = append(out, "what others have made since because the object was there, unless it has their ownerReferences")
		if a.Spec.Target.Kind == "PersistentVolumeClaim" {
			out = append(out, "anything: the volume that was made for the claim is deleted with it, with its data, if its reclaim policy is Delete")
		}
	default:
		out = append(out, "what controllers have done meanwhile because of the change, such as Pods that were replaced")
	}
	return out
}

// deletionNotes returns what is lost with an object that was deleted.
func deletionNotes(a *v1alpha1.Action) []string {
	out := []string{"the object's UID, status and age: it is made again, and what refers to its UID does not know it"}
	switch a.Spec.Target.Kind {
	case "PersistentVolumeClaim":
		out = append(out, "the data of its volume, if the volume's reclaim policy is Delete; the claim is made again and gets an empty one, or waits for one that is not there")
	case "PersistentVolume":
		out = append(out, "the data, and the binding to its claim")
	case "Pod":
		out = append(out, "the state of its containers and its emptyDir and ephemeral volumes; a controller may have replaced it already, so that there are two")
	case "StatefulSet.apps":
		out = append(out, "claims that were deleted with it (persistentVolumeClaimRetentionPolicy), with their data")
	case "Service":
		out = append(out, "its addresses and node ports, where others have been given them since, and those of a load balancer")
	case "Job.batch":
		out = append(out, "what has run: the Job runs again")
	case "ServiceAccount":
		out = append(out, "its tokens: those that were issued are not valid for the new one")
	case "Secret", "ConfigMap":
		out = append(out, "Pods that could not start meanwhile, until their next attempt")
	}
	if a.Spec.PropagationPolicy != "Orphan" {
		out = append(out, "dependents that were deleted with it: only their controllers make them again")
	}
	var object struct {
		Metadata struct {
			OwnerReferences []any  `json:"ownerReferences"`
			GenerateName    string `json:"generateName"`
		} `json:"metadata"`
	}
	if json.Unmarshal([]byte(a.Inverse.Patch), &object) == nil {
		if len(object.Metadata.OwnerReferences) > 0 {
			out = append(out, "the object for long, if its owner is gone: the garbage collector deletes it again")
		}
		if object.Metadata.GenerateName != "" {
			out = append(out, "the place of its generated name: its owner may have made another under a new name")
		}
	}
	return out
}
