include(${CMAKE_CURRENT_LIST_DIR}/model_sources.cmake)
