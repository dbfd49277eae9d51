{{- define "faultline.slurm.env" -}}
- {name: FAULTLINE_SLURM__URL, value: {{ .Values.slurm.url | quote }}}
- {name: FAULTLINE_SLURM__USER, value: {{ .Values.slurm.user }}}
- {name: FAULTLINE_SLURM__TOKEN_FILE, value: /etc/faultline-slurm/token}
{{- end }}
{{- define "faultline.slurm.volume" -}}
- {name: slurm-token, secret: {secretName: {{ .Values.slurm.existingSecret }}}}
{{- end }}

{{/* What the switches add to the responder. Variables, mounts and volumes of each stand together three times over. */}}
{{- define "faultline.responder.env" -}}
{{- if .Values.slurm.enabled }}
{{ include "faultline.slurm.env" . }}
{{- end }}
{{- with .Values.redfish }}{{ if .enabled }}
# {node} is the node's name.
- {name: FAULTLINE_NODE_WORK__REDFISH__ADDRESS, value: {{ .address | quote }}}
- {name: FAULTLINE_NODE_WORK__REDFISH__USER_FILE, value: /etc/faultline-bmc/user}
- {name: FAULTLINE_NODE_WORK__REDFISH__PASSWORD_FILE, value: /etc/faultline-bmc/password}
- {name: FAULTLINE_NODE_WORK__REDFISH__CA_FILE, value: /etc/faultline-bmc/ca.crt}
{{- end }}{{ end }}
{{- if .Values.nodeWork.enabled }}
- {name: FAULTLINE_NODE_WORK__NAMESPACE, value: {{ .Values.nodeWork.namespace }}}
- {name: FAULTLINE_NODE_WORK__RESET_GPU, value: /etc/faultline-node-work/reset-gpu.yaml}
- {name: FAULTLINE_NODE_WORK__REBOOT_NODE, value: /etc/faultline-node-work/reboot-node.yaml}
{{- if .Values.diagnostics.enabled }}
# One way to validate, not two.
- {name: FAULTLINE_NODE_WORK__DIAGNOSTICS, value: /etc/faultline-diagnostics}
{{- else }}
- {name: FAULTLINE_NODE_WORK__VALIDATE_NODE, value: /etc/faultline-node-work/validate-node.yaml}
{{- end }}
{{- end }}
{{- if .Values.templates.enabled }}
- {name: FAULTLINE_NODE_WORK__OBJECT_TEMPLATES, value: /etc/faultline-object-templates}
{{- end }}
{{- end }}

{{- define "faultline.responder.mounts" -}}
{{- if .Values.slurm.enabled }}
- {name: slurm-token, mountPath: /etc/faultline-slurm, readOnly: true}
{{- end }}
{{- if .Values.redfish.enabled }}
- {name: bmc, mountPath: /etc/faultline-bmc, readOnly: true}
{{- end }}
{{- if .Values.nodeWork.enabled }}
- {name: node-work, mountPath: /etc/faultline-node-work, readOnly: true}
{{- if .Values.diagnostics.enabled }}
- {name: diagnostics, mountPath: /etc/faultline-diagnostics, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.templates.enabled }}
- {name: object-templates, mountPath: /etc/faultline-object-templates, readOnly: true}
{{- end }}
{{- end }}

{{- define "faultline.responder.volumes" -}}
{{- if .Values.slurm.enabled }}
{{ include "faultline.slurm.volume" . }}
{{- end }}
{{- if .Values.redfish.enabled }}
- {name: bmc, secret: {secretName: {{ .Values.redfish.existingSecret }}}}
{{- end }}
{{- if .Values.nodeWork.enabled }}
- {name: node-work, configMap: {name: {{ .Values.nodeWork.existingConfigMap | default "faultline-node-work" }}}}
{{- if .Values.diagnostics.enabled }}
- {name: diagnostics, configMap: {name: {{ .Values.diagnostics.existingConfigMap | default "faultline-diagnostics" }}}}
{{- end }}
{{- end }}
{{- if .Values.templates.enabled }}
- {name: object-templates, configMap: {name: {{ .Values.templates.existingConfigMap | default "faultline-object-templates" }}}}
{{- end }}
{{- end }}
