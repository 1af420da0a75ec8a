# METADATA
# title: Images have digests
# custom: {severity: low, kinds: ["Deployment.apps"]}
package sampling

violation contains {"msg": sprintf("%s: %s has no digest", [input.ref.name, container.image])} if {
	some container in input.object.spec.template.spec.containers
	not contains(container.image, "@sha256:")
	input.object.spec.replicas > 0
}

violation contains {"msg": "one replica"} if {
	input.object.spec.replicas == 1
	not critical
}

critical if input.object.metadata.labels.tier == "critical"
