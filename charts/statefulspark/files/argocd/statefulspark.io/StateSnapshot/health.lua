-- Argo CD health of a StateSnapshot.
-- Copy it into argocd-cm as resource.customizations.health.statefulspark.io_StateSnapshot (docs/how-to/platform.md).
local health = { status = "Progressing", message = "Waiting for the operator" }
if obj.status == nil or obj.status.state == nil then
  return health
end
health.message = obj.status.state
if obj.status.state == "COMPLETED" then
  health.status = "Healthy"
  health.message = obj.status.path
end
if obj.status.state == "FAILED" or obj.status.state == "ABANDONED" then
  health.status = "Degraded"
  if obj.status.error ~= nil then
    health.message = obj.status.error
  end
end
return health
