# METADATA
# title: Namespaces are in use
# description: |
#   A Namespace in which nothing runs, and which has been there for longer than a project
#   takes to begin, was forgotten: its quota, roles and Secrets were not. In use is a
#   Namespace with a Pod, or something that makes Pods. How long it has been empty is not
#   known, only how old it is. Namespaces whose names begin with kube-, namespace default,
#   and those with the given annotation are not evaluated. Verdicts are Unknown while what
#   runs in a member is incomplete.
# custom:
#   severity: low
#   kinds: ["Namespace", "Pod", "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch", "CronJob.batch"]
#   parameters:
#     type: object
#     properties:
#       days:
#         description: How old a Namespace may become before it is used.
#         type: integer
#         minimum: 0
#         maximum: 3650
#         default: 30
#       annotation:
#         description: Annotation of Namespaces that may be empty.
#         type: string
#         minLength: 1
#         default: federator.dev/kept-because
package federator.tenancy.unused_namespace

import data.federator.lib.time as lib

# The namespaces of each member in which there is something.
view.used[sprintf("%s %s", [input.ref.member, input.ref.namespace])] contains true if input.ref.kind != "Namespace"

violation contains {"msg": sprintf("nothing runs in it, and it is more than %d days old", [input.parameters.days])} if {
	input.ref.kind == "Namespace"
	not startswith(input.ref.name, "kube-")
	input.ref.name != "default"
	not input.object.metadata.annotations[input.parameters.annotation]
	lib.older(input.object.metadata.creationTimestamp, lib.days(input.parameters.days))
	not data.fleet.views["federator.tenancy.unused_namespace"].used[sprintf("%s %s", [input.ref.member, input.ref.name])]
}
