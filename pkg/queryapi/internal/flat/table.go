package flat

import "federator.dev/federator/pkg/aggregate"

// commonFields has the fields that are rewritten in objects of every kind, besides their own key.
var commonFields = []field{
	{"metadata.ownerReferences[]", reference},
}

// table has the fields that are rewritten in objects of a kind, at any of its versions.
var table = map[aggregate.Kind][]field{
	// Workloads.
	"Pod": {
		{"spec", nested(podSpec)},
		{"status.nominatedNodeName", clusterNameOf("Node")},
	},
	"PodTemplate":           {{"template.spec", nested(podSpec)}},
	"ReplicationController": {{"spec.template.spec", nested(podSpec)}},
	"DaemonSet.apps":        {{"spec.template.spec", nested(podSpec)}},
	"Deployment.apps":       {{"spec.template.spec", nested(podSpec)}},
	"ReplicaSet.apps":       {{"spec.template.spec", nested(podSpec)}},
	"StatefulSet.apps": {
		{"spec.template.spec", nested(podSpec)},
		{"spec.volumeClaimTemplates[].spec", nested(claimSpec)},
		{"spec.volumeClaimTemplates[].status", nested(claimStatus)},
	},
	"DaemonSet.extensions":  {{"spec.template.spec", nested(podSpec)}},
	"Deployment.extensions": {{"spec.template.spec", nested(podSpec)}},
	"ReplicaSet.extensions": {{"spec.template.spec", nested(podSpec)}},
	"Job.batch":             {{"spec.template.spec", nested(podSpec)}},
	"CronJob.batch": {
		{"spec.jobTemplate.spec.template.spec", nested(podSpec)},
		{"status.active[]", reference},
	},
	"PodGroup.scheduling.k8s.io": {{"spec.priorityClassName", clusterNameOf("PriorityClass.scheduling.k8s.io")}},
	"Workload.scheduling.k8s.io": {{"spec.podGroupTemplates[].priorityClassName", clusterNameOf("PriorityClass.scheduling.k8s.io")}},

	// Events.
	"Event": {
		{"involvedObject", reference},
		{"related", reference},
	},
	"Event.events.k8s.io": {
		{"regarding", reference},
		{"related", reference},
	},

	// Nodes.
	"Node": {
		{"spec.configSource.configMap.namespace", namespace},
		{"status.config.active.configMap.namespace", namespace},
		{"status.config.assigned.configMap.namespace", namespace},
		{"status.config.lastKnownGood.configMap.namespace", namespace},
	},
	"PodCertificateRequest.certificates.k8s.io": {{"spec.nodeName", clusterNameOf("Node")}},

	// Storage.
	"PersistentVolume": {{"spec", nested(volumeSpec)}},
	"PersistentVolumeClaim": {
		{"spec", nested(claimSpec)},
		{"status", nested(claimStatus)},
	},
	"VolumeAttachment.storage.k8s.io": {
		{"spec.nodeName", clusterNameOf("Node")},
		{"spec.source.persistentVolumeName", clusterNameOf("PersistentVolume")},
		{"spec.source.inlineVolumeSpec", nested(volumeSpec)},
	},
	"CSIStorageCapacity.storage.k8s.io": {{"storageClassName", clusterNameOf("StorageClass.storage.k8s.io")}},
	"VolumeSnapshot.snapshot.storage.k8s.io": {
		{"spec.volumeSnapshotClassName", clusterNameOf("VolumeSnapshotClass.snapshot.storage.k8s.io")},
		{"spec.source.volumeSnapshotContentName", clusterNameOf("VolumeSnapshotContent.snapshot.storage.k8s.io")},
		{"status.boundVolumeSnapshotContentName", clusterNameOf("VolumeSnapshotContent.snapshot.storage.k8s.io")},
	},
	"VolumeSnapshotContent.snapshot.storage.k8s.io": {
		{"spec.volumeSnapshotClassName", clusterNameOf("VolumeSnapshotClass.snapshot.storage.k8s.io")},
		{"spec.volumeSnapshotRef", reference},
	},

	// Devices.
	"ResourceClaim.resource.k8s.io":         {{"spec", nested(claimedDevices)}},
	"ResourceClaimTemplate.resource.k8s.io": {{"spec.spec", nested(claimedDevices)}},
	"ResourceSlice.resource.k8s.io": {
		{"spec.nodeName", clusterNameOf("Node")},
		{"spec.devices[].nodeName", clusterNameOf("Node")},
		{"spec.devices[].basic.nodeName", clusterNameOf("Node")},
	},
	"ResourcePoolStatusRequest.resource.k8s.io": {{"status.pools[].nodeName", clusterNameOf("Node")}},

	// Network.
	"Endpoints": {
		{"subsets[].addresses[]", nested(endpoint)},
		{"subsets[].notReadyAddresses[]", nested(endpoint)},
	},
	"EndpointSlice.discovery.k8s.io": {{"endpoints[]", nested(endpoint)}},
	"Ingress.networking.k8s.io":      {{"spec.ingressClassName", clusterNameOf("IngressClass.networking.k8s.io")}},
	"Ingress.extensions":             {{"spec.ingressClassName", clusterNameOf("IngressClass.networking.k8s.io")}},
	"IngressClass.networking.k8s.io": {{"spec.parameters", reference}},
	"IPAddress.networking.k8s.io":    {{"spec.parentRef.namespace", namespace}},
	"GatewayClass." + gatewayGroup:   {{"spec.parametersRef", reference}},
	"ReferenceGrant." + gatewayGroup: {{"spec.from[].namespace", namespace}},
	"GRPCRoute." + gatewayGroup:      routeFields,
	"HTTPRoute." + gatewayGroup:      routeFields,
	"TCPRoute." + gatewayGroup:       routeFields,
	"TLSRoute." + gatewayGroup:       routeFields,
	"UDPRoute." + gatewayGroup:       routeFields,
	"Gateway." + gatewayGroup: {
		{"spec.gatewayClassName", clusterNameOf("GatewayClass." + gatewayGroup)},
		{"spec.listeners[].tls.certificateRefs[].namespace", namespace},
	},

	// Access.
	"ClusterRoleBinding.rbac.authorization.k8s.io": {
		{"roleRef", reference},
		{"subjects[].namespace", namespace},
	},
	"RoleBinding.rbac.authorization.k8s.io": {
		{"roleRef", reference},
		{"subjects[].namespace", namespace},
	},
	"ServiceAccount": {{"secrets[]", reference}},

	// The API itself.
	"APIService.apiregistration.k8s.io": {{"spec.service.namespace", namespace}},
	"CustomResourceDefinition.apiextensions.k8s.io": {
		{"spec.conversion.webhook.clientConfig.service.namespace", namespace},
		{"spec.conversion.webhookClientConfig.service.namespace", namespace},
	},
	"MutatingWebhookConfiguration.admissionregistration.k8s.io":   {{"webhooks[].clientConfig.service.namespace", namespace}},
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io": {{"webhooks[].clientConfig.service.namespace", namespace}},
	"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io": {
		{"spec.policyName", clusterNameOf("MutatingAdmissionPolicy.admissionregistration.k8s.io")},
		{"spec.paramRef.namespace", namespace},
	},
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": {
		{"spec.policyName", clusterNameOf("ValidatingAdmissionPolicy.admissionregistration.k8s.io")},
		{"spec.paramRef.namespace", namespace},
	},
	"FlowSchema.flowcontrol.apiserver.k8s.io": {
		{"spec.priorityLevelConfiguration.name", clusterNameOf("PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io")},
		{"spec.rules[].subjects[].serviceAccount.namespace", namespace},
	},
}

const gatewayGroup = "gateway.networking.k8s.io"

// routeFields are the fields of Gateway API's routes.
var routeFields = []field{
	{"spec", nested(routeSpec)},
	{"status.parents[].parentRef.namespace", namespace},
}

var routeSpec = &shape{"RouteSpec", []field{
	{"parentRefs[].namespace", namespace},
	{"rules[].backendRefs[].namespace", namespace},
	{"rules[].backendRefs[].filters[].requestMirror.backendRef.namespace", namespace},
	{"rules[].filters[].requestMirror.backendRef.namespace", namespace},
}}

var podSpec = &shape{"PodSpec", []field{
	{"nodeName", clusterNameOf("Node")},
	{"priorityClassName", clusterNameOf("PriorityClass.scheduling.k8s.io")},
	{"runtimeClassName", clusterNameOf("RuntimeClass.node.k8s.io")},
	{"volumes[].ephemeral.volumeClaimTemplate.spec", nested(claimSpec)},
	{"volumes[].projected.sources[].clusterTrustBundle.name", clusterNameOf("ClusterTrustBundle.certificates.k8s.io")},
}}

var claimSpec = &shape{"PersistentVolumeClaimSpec", []field{
	{"storageClassName", clusterNameOf("StorageClass.storage.k8s.io")},
	{"volumeAttributesClassName", clusterNameOf("VolumeAttributesClass.storage.k8s.io")},
	{"volumeName", clusterNameOf("PersistentVolume")},
	{"dataSource", reference},
	{"dataSourceRef", reference},
}}

var claimStatus = &shape{"PersistentVolumeClaimStatus", []field{
	{"currentVolumeAttributesClassName", clusterNameOf("VolumeAttributesClass.storage.k8s.io")},
	{"modifyVolumeStatus.targetVolumeAttributesClassName", clusterNameOf("VolumeAttributesClass.storage.k8s.io")},
}}

var volumeSpec = &shape{"PersistentVolumeSpec", []field{
	{"storageClassName", clusterNameOf("StorageClass.storage.k8s.io")},
	{"volumeAttributesClassName", clusterNameOf("VolumeAttributesClass.storage.k8s.io")},
	{"claimRef", reference},
	{"azureFile.secretNamespace", namespace},
	{"cephfs.secretRef.namespace", namespace},
	{"cinder.secretRef.namespace", namespace},
	{"csi.controllerExpandSecretRef.namespace", namespace},
	{"csi.controllerPublishSecretRef.namespace", namespace},
	{"csi.nodeExpandSecretRef.namespace", namespace},
	{"csi.nodePublishSecretRef.namespace", namespace},
	{"csi.nodeStageSecretRef.namespace", namespace},
	{"flexVolume.secretRef.namespace", namespace},
	{"glusterfs.endpointsNamespace", namespace},
	{"iscsi.secretRef.namespace", namespace},
	{"rbd.secretRef.namespace", namespace},
	{"scaleIO.secretRef.namespace", namespace},
	{"storageos.secretRef.namespace", namespace},
}}

var endpoint = &shape{"Endpoint", []field{
	{"nodeName", clusterNameOf("Node")},
	{"targetRef", reference},
}}

var claimedDevices = &shape{"ResourceClaimSpec", []field{
	{"devices.requests[].deviceClassName", clusterNameOf("DeviceClass.resource.k8s.io")},
	{"devices.requests[].exactly.deviceClassName", clusterNameOf("DeviceClass.resource.k8s.io")},
	{"devices.requests[].firstAvailable[].deviceClassName", clusterNameOf("DeviceClass.resource.k8s.io")},
}}

// clusterScoped are the kinds of Kubernetes itself that have no namespaces, for which
// ScopeFunc is not called.
var clusterScoped = kindSet(
	"Namespace", "Node", "PersistentVolume", "ComponentStatus",
	"ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
	"MutatingAdmissionPolicy.admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"MutatingWebhookConfiguration.admissionregistration.k8s.io", "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
	"APIService.apiregistration.k8s.io", "CustomResourceDefinition.apiextensions.k8s.io",
	"CertificateSigningRequest.certificates.k8s.io", "ClusterTrustBundle.certificates.k8s.io",
	"FlowSchema.flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io",
	"IngressClass.networking.k8s.io", "IPAddress.networking.k8s.io", "ServiceCIDR.networking.k8s.io",
	"RuntimeClass.node.k8s.io", "PriorityClass.scheduling.k8s.io",
	"DeviceClass.resource.k8s.io", "DeviceTaintRule.resource.k8s.io", "ResourceSlice.resource.k8s.io", "ResourcePoolStatusRequest.resource.k8s.io",
	"CSIDriver.storage.k8s.io", "CSINode.storage.k8s.io", "StorageClass.storage.k8s.io",
	"VolumeAttachment.storage.k8s.io", "VolumeAttributesClass.storage.k8s.io",
	"StorageVersion.internal.apiserver.k8s.io", "StorageVersionMigration.storagemigration.k8s.io",
)

func kindSet(kinds ...string) map[string]bool {
	out := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		out[kind] = true
	}
	return out
}
