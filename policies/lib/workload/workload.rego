# Package federator.lib.workload finds the pod of whatever has one: a Pod, or the
# template of a Deployment, StatefulSet, DaemonSet, Job or CronJob.
#
# Fields of an object may be missing, null or of another type. Nothing here fails
# for that: what is not there gives no answer, or an empty list.
package federator.lib.workload

# spec is the spec of the pod. There is one rule for each kind, as rules that are
# told apart by a constant let the engine leave out what a policy does not read.
spec := input.object.spec if input.ref.kind == "Pod"

spec := input.object.spec.template.spec if input.ref.kind == "Deployment.apps"

spec := input.object.spec.template.spec if input.ref.kind == "StatefulSet.apps"

spec := input.object.spec.template.spec if input.ref.kind == "DaemonSet.apps"

spec := input.object.spec.template.spec if input.ref.kind == "Job.batch"

spec := input.object.spec.jobTemplate.spec.template.spec if input.ref.kind == "CronJob.batch"

# templated holds for what was made of a template that is judged itself: telling of
# it again helps nobody. A Pod of a ReplicaSet is one of a Deployment if it has the
# label that only the Deployment's controller gives.
templated if {
	input.ref.kind == "Pod"
	controller.apiVersion == "apps/v1"
	controller.kind in {"DaemonSet", "StatefulSet"}
}

templated if {
	input.ref.kind == "Pod"
	controller.apiVersion == "apps/v1"
	controller.kind == "ReplicaSet"
	input.object.metadata.labels["pod-template-hash"]
}

templated if {
	input.ref.kind == "Pod"
	controller.apiVersion == "batch/v1"
	controller.kind == "Job"
}

templated if {
	input.ref.kind == "Job.batch"
	controller.apiVersion == "batch/v1"
	controller.kind == "CronJob"
}

controller := [owner | some owner in input.object.metadata.ownerReferences; owner.controller == true][0]

# containers are all containers of a pod: those that run, those that run before
# them, and those that were added for debugging.
containers(pod) := array.concat(long_running(pod), array.concat(init(pod), ephemeral(pod)))

default long_running(_) := []

long_running(pod) := pod.containers if is_array(pod.containers)

default init(_) := []

init(pod) := pod.initContainers if is_array(pod.initContainers)

default ephemeral(_) := []

ephemeral(pod) := pod.ephemeralContainers if is_array(pod.ephemeralContainers)

# sidecars are the init containers that run as long as the pod does.
sidecars(pod) := [c | some c in init(pod); c.restartPolicy == "Always"]

# name is what messages call a container or a volume.
default name(_) := "(unnamed)"

name(container) := container.name if is_string(container.name)
