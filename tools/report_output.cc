#include "tools/report_output.h"

#include "proto/report.pb.h"
#include "tools/render/text_report.h"

namespace foreshard {

StatusOr<ExitCode> ShowReport(const OutputFlags& flags, const pb::Report& report) {
  RETURN_IF_ERROR(WriteJson(flags, report));
  RETURN_IF_ERROR(PrintText(flags, RenderText(report, TextWidth())));
  return report.fit().fits() ? ExitCode::kOk : ExitCode::kDoesNotFit;
}

}  // namespace foreshard
